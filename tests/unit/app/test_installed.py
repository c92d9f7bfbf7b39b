"""Installed packages in their folder; with a running host: tests/integration/test_installation.py."""

import os
import subprocess
import sys

from walle_stream.app.installed import InstalledPrograms


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


def test_what_no_device_has_goes_unless_other_processes_share_the_folder(tmp_path):
    (tmp_path / "ab").write_bytes(b"package")
    InstalledPrograms(tmp_path, None, list, is_shared=True).retain({})
    assert (tmp_path / "ab").exists()
    opened(tmp_path).retain({})
    assert not (tmp_path / "ab").exists()
