import subprocess
import sys

import pytest

from walle_stream.cloud.place import advertised, own_data_dir
from walle_stream.errors import MetricsAddressError, StoreError, StoreLockedError


def test_a_data_dir_is_one_worker_s(tmp_path):
    with own_data_dir(tmp_path / "a" / "b") as path:
        assert path.is_dir()
        with (
            pytest.raises(StoreLockedError, match="of another running worker"),
            own_data_dir(path, wait_s=0),
        ):
            pass
    with own_data_dir(path):
        pass


def test_a_worker_that_was_killed_holds_nothing(tmp_path):
    code = (
        "import sys, pathlib; from walle_stream.cloud.place import own_data_dir\n"
        "with own_data_dir(pathlib.Path(sys.argv[1])):\n print(flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline()
        with pytest.raises(StoreLockedError), own_data_dir(tmp_path, wait_s=0):
            pass
        child.kill()
    with own_data_dir(tmp_path):
        pass


def test_that_of_a_run_is_left_alone(tmp_path):
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(StoreError, match="of walle run"), own_data_dir(tmp_path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["meta.json"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("file", "File exists"), ("file/below", "Not a directory"), ("\0", "mkdir: embedded null")],
)
def test_what_cannot_be_a_folder_is_said(tmp_path, name, reason):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match=f"cannot be used as data directory .{reason}"),
        own_data_dir(tmp_path / name),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("cloud-1", ("cloud-1", 6066)),
        ("10.0.0.7:80", ("10.0.0.7", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_advertised_address_has_the_ports_default(text, found):
    assert advertised(text, 6066) == found


@pytest.mark.parametrize("text", ["", ":80", "a:b", "a:99999", "http://a", "a/b", "u@a", "[::1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(MetricsAddressError, match="give HOST or HOST:PORT"):
        advertised(text, 6066)
