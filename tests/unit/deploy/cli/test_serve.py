import argparse
import importlib.util

import pytest

from walle_deploy.cli import serve
from walle_stream.errors import ServiceUnreachableError, SpecFileError


def run(*arguments):
    parser = argparse.ArgumentParser()
    serve.add(parser.add_subparsers())
    options = parser.parse_args(["serve", *arguments])
    return options.run(options)


def test_a_missing_extra_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        SpecFileError, match=r"httptools is not installed: pip install 'walle-stream\[deploy\]'"
    ):
        run("--store", "x.json")


@pytest.mark.parametrize("address", ["8080", "x:", "127.0.0.1:70000", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused(address):
    pytest.importorskip("uvicorn", reason="the extra `deploy` is not installed")
    with pytest.raises(SpecFileError, match="expected HOST:PORT"):
        run("--store", "x.json", "--listen", address)


def test_a_store_or_a_set_up_that_is_none_is_refused(tmp_path):
    pytest.importorskip("uvicorn", reason="the extra `deploy` is not installed")
    with pytest.raises(ServiceUnreachableError, match="there is no release store"):
        run("--store", str(tmp_path / "what"))
    with pytest.raises(ServiceUnreachableError, match="give --store"):
        run("--store", "")
    (tmp_path / "s.yaml").write_text(
        "apiVersion: walle/v1\nkind: ReleaseService\nmetadata: {name: s}\nspec: {cdn: ftp://x}\n"
    )
    with pytest.raises(SpecFileError, match=r"s\.yaml:4:13: spec\.cdn"):
        run(str(tmp_path / "s.yaml"), "--store", "x.json")


def test_an_address_that_is_not_ours_is_refused():
    pytest.importorskip("uvicorn", reason="the extra `deploy` is not installed")
    with pytest.raises(ServiceUnreachableError, match="cannot be had"):
        run("--store", "x.json", "--listen", "192.0.2.1:0")


def test_workers_have_a_bound():
    for text in ("0", "257", "x", "-1"):
        with pytest.raises(SystemExit):
            run("--store", "x.json", "--workers", text)
