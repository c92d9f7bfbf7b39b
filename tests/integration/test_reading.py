"""Readers of a data directory never write to it, and take the pipeline's file."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

FAILS = "def run(ctx, page):\n    raise ValueError('no')\n"


@pytest.fixture
def done(walle, tmp_path):
    """Run a project whose task fails on one of its devices, in ``tmp_path``."""
    walle("init", tmp_path / "p")
    script = tmp_path / "p/visit.py"
    script.write_text(
        script.read_text().replace(
            "    visits =",
            "    if ctx.device_id == 'user-2': raise ValueError('no')\n    visits =",
            1,
        )
    )
    walle("run", "p/pipeline.yaml", "--json", cwd=tmp_path)
    return tmp_path / "walle-data/p"


@pytest.fixture
def read_only(done, tmp_path, monkeypatch):
    """The same directory, where nothing can be written: the kernel sees to it where it may."""
    if os.geteuid():
        folders = [done, *(each for each in done.rglob("*") if each.is_dir())]
        for each in folders:
            each.chmod(0o500)
        yield done
        for each in folders:
            each.chmod(0o700)
        return
    place = tmp_path / "mounted"
    place.mkdir()
    mounts = [["mount", "--bind", done, place], ["mount", "-o", "remount,ro,bind", place]]
    if any(subprocess.run(each, capture_output=True, check=False).returncode for each in mounts):
        # a container's root may not mount: then nobody may say that it can be written
        subprocess.run(["umount", place], capture_output=True, check=False)
        real = os.access
        monkeypatch.setattr(
            os,
            "access",
            lambda path, mode: done not in (path, *Path(path).parents) and real(path, mode),
        )
        yield done
        return
    yield place
    subprocess.run(["umount", place], check=True)


def written(folder):
    return {each: each.stat().st_mtime_ns for each in folder.rglob("*")}


def test_every_reader_reads_where_nothing_can_be_written(walle, done, read_only):
    before = written(done)
    features = walle("features", "list", "--data-dir", read_only).stdout.splitlines()
    assert len(features) == 2
    assert walle("features", "get", "user-1", "--data-dir", read_only).stdout.splitlines()
    assert len(walle("dead-letters", "list", "--data-dir", read_only).stdout.splitlines()) == 1
    assert "ended" in walle("status", read_only).stdout
    assert json.loads(walle("ledger", read_only, "--json").stdout)["tasks"]
    assert walle("state", "export", "--data-dir", read_only).stdout
    assert written(done) == before


def test_dead_letters_are_listed_by_the_pipeline_s_file(walle, done, tmp_path):
    pipeline = tmp_path / "p/pipeline.yaml"
    (line,) = walle("dead-letters", "list", pipeline, cwd=tmp_path).stdout.splitlines()
    assert "ValueError: no" in line
    for options in (["--data-dir", done], [pipeline, "--data-dir", done]):
        assert walle("dead-letters", "list", *options).stdout.splitlines() == [line]
    named = walle(
        "dead-letters", "list", pipeline, "--set", "metadata.name=q", cwd=tmp_path, check=False
    )
    assert named.returncode == 6  # there is none of that name
    other = walle("dead-letters", "list", "otto", "--data-dir", done, check=False)
    assert (other.returncode, len(other.stderr.splitlines())) == (3, 1)
    assert walle("dead-letters", "list", check=False).returncode == 2
    replayed = walle(
        "dead-letters", "replay", pipeline, "--to", tmp_path / "o", "--json", cwd=tmp_path
    )
    assert json.loads(replayed.stdout)["dry_run"] is False
