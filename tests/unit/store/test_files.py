"""Files that survive a power cut: written beside, flushed, renamed, and their folder flushed."""

import errno
import os
from pathlib import Path

import pytest

from walle_stream.store import files
from walle_stream.store.files import make_folder, placing, put_file, sync_folder


@pytest.fixture
def calls(monkeypatch):
    """What reaches the disk, in its order: flushes by name, and renames."""
    found = []
    fsync, replace = os.fsync, files.Path.replace

    def noted(descriptor):
        found.append(("flush", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def renamed(path, target):
        found.append(("name", target.name))
        return replace(path, target)

    monkeypatch.setattr(files.os, "fsync", noted)
    monkeypatch.setattr(files.Path, "replace", renamed)
    return found


def test_a_file_is_flushed_before_it_has_its_name_and_its_folder_behind(tmp_path, calls):
    part = tmp_path / "part"
    put_file(tmp_path / "file", b"new", part=part)
    assert calls == [("flush", "part"), ("name", "file"), ("flush", tmp_path.name)]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    def fail():
        raise OSError(errno.ENOSPC, "full")

    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(OSError, match="full"):
        put_file(tmp_path / "file", b"new", on_part=fail)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]


def test_a_part_is_hidden_and_names_who_writes_it(tmp_path):
    with placing(tmp_path / "file") as part:
        assert part.name.startswith(".")
        assert part.suffix == f".{os.getpid()}"
        part.write_bytes(b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_every_folder_that_is_made_is_named_for_good(tmp_path, calls):
    make_folder(tmp_path / "a/b", mode=0o700)
    assert calls == [("flush", tmp_path.name), ("flush", "a")]
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700
    make_folder(tmp_path / "a/b")
    assert len(calls) == 2


def test_a_file_system_that_flushes_no_folder_is_passed_over(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(files.os, "fsync", refuse)
    sync_folder(tmp_path)


def test_a_disk_that_fails_is_not_passed_over(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(OSError, match="broken"):
        sync_folder(tmp_path)
