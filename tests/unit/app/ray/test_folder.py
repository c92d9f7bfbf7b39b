"""An embedded cluster's folder: one each, and none left of drivers that were killed."""

import subprocess
import sys
from pathlib import Path

from walle_stream.app.ray.folder import cluster_folder

KILLED = """
import os, pathlib, sys
from walle_stream.app.ray.folder import cluster_folder
with cluster_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "session").mkdir()
    os.kill(os.getpid(), 9)
"""


def test_a_folder_goes_with_its_cluster(tmp_path: Path) -> None:
    with cluster_folder(tmp_path) as folder:
        (folder / "session").mkdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_those_in_use_and_those_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "walle-ray-being-made").mkdir()
    (tmp_path / "walle-other").mkdir()
    with cluster_folder(tmp_path) as first, cluster_folder(tmp_path) as second:
        assert first != second
        assert first.is_dir()
        assert len(list(tmp_path.iterdir())) == 4
    assert {each.name for each in tmp_path.iterdir()} == {"walle-ray-being-made", "walle-other"}


def test_what_a_killed_driver_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert killed.returncode == -9
    [left] = tmp_path.iterdir()
    with cluster_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert folder != left


def test_it_lies_where_a_sockets_path_is_short() -> None:
    with cluster_folder() as folder:
        # as long as Ray's longest: folder/session_<time>_<pid>/sockets/plasma_store
        assert len(str(folder)) < 40
