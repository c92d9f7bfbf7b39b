import argparse
import importlib.util

import pytest

from walle_deploy.cli import serve
from walle_deploy.store.opening import open_store
from walle_stream.errors import ServiceUnreachableError, SpecFileError


def run(*arguments):
    parser = argparse.ArgumentParser()
    serve.add(parser.add_subparsers())
    options = parser.parse_args(["serve", *arguments])
    return options.run(options)


@pytest.fixture
def store(tmp_path):
    pytest.importorskip("uvicorn", reason="the extra `deploy` is not installed")
    open_store(str(tmp_path / "r.db")).close()
    return str(tmp_path / "r.db")


def test_a_missing_extra_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        SpecFileError, match=r"httptools is not installed: .*pip install .*\[deploy\]"
    ):
        run("--store", "x.db")


@pytest.mark.parametrize("address", ["8080", "x:", "127.0.0.1:70000", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused(address, store):
    with pytest.raises(SpecFileError, match="expected HOST:PORT"):
        run("--store", store, "--files", "http://x/", "--listen", address)


def test_a_store_or_a_set_up_that_is_none_is_refused(tmp_path):
    pytest.importorskip("uvicorn", reason="the extra `deploy` is not installed")
    with pytest.raises(ServiceUnreachableError, match="there is no release store"):
        run("--store", str(tmp_path / "what"), "--files", "http://127.0.0.1:1")
    with pytest.raises(ServiceUnreachableError, match="give --store"):
        run("--store", "")
    head = "apiVersion: walle/v1\nkind: ReleaseService\nmetadata: {name: s}\n"
    for wrong in ("ftp://x", "http://x:99999/", "http://u:p@x/"):
        (tmp_path / "s.yaml").write_text(f"{head}spec: {{cdn: '{wrong}'}}\n")
        with pytest.raises(SpecFileError, match=r"s\.yaml:4:13: spec\.cdn"):
            run(str(tmp_path / "s.yaml"), "--store", "x.db")


def test_addresses_that_devices_would_pull_from_are_checked_at_the_start(tmp_path):
    pytest.importorskip("uvicorn", reason="the extra `deploy` is not installed")
    with pytest.raises(SpecFileError, match="--files 'nourl': is not the address") as caught:
        run("--store", "x.db", "--files", "nourl")
    assert caught.value.exit_code == 3
    with pytest.raises(SpecFileError, match=r"no spec\.cdn, spec\.metadata: pass --files URL"):
        run("--store", str(tmp_path / "r.db"))
    (tmp_path / "s.yaml").write_text(
        "apiVersion: walle/v1\nkind: ReleaseService\nmetadata: {name: s}\n"
        "spec: {cdn: http://x/, metadata: http://x/m/}\n"
    )
    file, store = str(tmp_path / "s.yaml"), str(tmp_path / "r.db")
    with pytest.raises(SpecFileError, match=r"there is no spec\.cen: "):
        run(file, "--store", store, "--repository", str(tmp_path))
    with pytest.raises(ServiceUnreachableError, match="there is no release store"):
        run(file, "--store", store)


def test_an_address_that_is_not_ours_is_refused(store):
    with pytest.raises(ServiceUnreachableError, match="cannot be used"):
        run("--store", store, "--files", "http://x/", "--listen", "192.0.2.1:0")


def test_workers_have_a_bound():
    for text in ("0", "257", "x", "-1"):
        with pytest.raises(SystemExit):
            run("--store", "x.db", "--workers", text)
