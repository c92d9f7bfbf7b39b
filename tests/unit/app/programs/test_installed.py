"""Installed packages in their folder; with a running host: tests/integration/test_installation.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from walle_stream.app.programs import installed as module
from walle_stream.app.programs.installed import InstalledPrograms, NewVersion
from walle_stream.errors import StoreError
from walle_stream.ports import InstalledTask


def opened(folder):
    return InstalledPrograms(folder, None, list)


def test_what_a_killed_process_had_half_written_goes(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in ("ab", f".cd.{dead.pid}", f".ef.{os.getpid()}", f".12.{os.getppid()}"):
        (tmp_path / name).write_bytes(b"half")
    opened(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"ab", f".12.{os.getppid()}"}


def test_a_folder_that_is_not_there_yet_is_not_made(tmp_path):
    opened(tmp_path / "packages")
    assert list(tmp_path.iterdir()) == []


class Ready:
    """A package that was read."""

    name, version = "visits", "v2"

    def installed(self, program, package):
        return InstalledTask("v2", (), program, package=package)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "unpack_task", lambda *_: Ready())
    return InstalledPrograms(tmp_path / "packages", None, list)


@pytest.fixture
def synced(monkeypatch):
    found = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: found.append(Path(f"/dev/fd/{descriptor}").readlink().name)
    )
    return found


def test_a_package_and_its_name_are_on_the_disk_before_anything_names_it(
    tmp_path, programs, synced
):
    _, task = programs.store(NewVersion(b"package", {"own": b"1"}))
    package, own = task.package, task.resources["own"]
    # a part, under a name of this process, then the folder that names it
    assert [each.rpartition(".")[2] for each in synced] == [
        tmp_path.name,
        str(os.getpid()),
        "packages",
        str(os.getpid()),
        "packages",
    ]
    assert {package, own} <= {each.name for each in (tmp_path / "packages").iterdir()}
    assert {path.name for path in (tmp_path / "packages").iterdir()} == {package, own}
    synced.clear()
    programs.store(NewVersion(b"package", {"own": b"1"}))
    assert synced == ["packages", "packages"]  # who put them there may have died before that


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path, programs, monkeypatch):
    def fails(_):
        raise OSError(5, "Input/output error")

    (tmp_path / "packages").mkdir()
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreError, match="Input/output error: nothing was installed"):
        programs.store(NewVersion(b"package"))
    assert list((tmp_path / "packages").iterdir()) == []


def test_what_no_device_has_goes_unless_other_processes_share_the_folder(tmp_path):
    (tmp_path / "ab").write_bytes(b"package")
    InstalledPrograms(tmp_path, None, list, is_shared=True).retain({})
    assert (tmp_path / "ab").exists()
    opened(tmp_path).retain({})
    assert not (tmp_path / "ab").exists()
