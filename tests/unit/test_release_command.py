"""make release: a new version, its notes, and what it refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2026-11-21\n\nOld.\n"


@pytest.fixture
def clone(tmp_path):
    """A repository that is like ours for the command: it builds with the same tool."""
    (tmp_path / "walle_stream").mkdir()
    (tmp_path / "walle_stream/__init__.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / ".gitignore").write_text("dist/\n__pycache__/\n")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/release.py", tmp_path / ".ci/release.py")
    (tmp_path / "build.py").write_text("import sys\nprint(sys.argv)\n")  # in place of `build`
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "config", "user.email", "a@b.c")
    git(tmp_path, "config", "user.name", "A")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "First")
    return tmp_path


def git(folder, *arguments):
    return subprocess.check_output(["git", *arguments], cwd=folder, text=True).strip()


def release(folder, *arguments):
    command = [sys.executable, ".ci/release.py", *arguments]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_version_changelog_commit_tag_and_notes(clone):
    done = release(clone, "0.2.0")
    assert done.returncode == 0, done.stderr
    assert '"0.2.0"' in (clone / "walle_stream/__init__.py").read_text()
    assert "## [Unreleased]\n\n## [0.2.0] - 2" in (clone / "CHANGELOG.md").read_text()
    assert (clone / "dist/0.2.0/NOTES.md").read_text() == "walle_stream 0.2.0\n\n- New.\n"
    assert git(clone, "log", "-1", "--format=%s") == "Release 0.2.0"
    assert git(clone, "tag", "--list", "--format=%(objecttype) %(subject)") == (
        "tag walle_stream 0.2.0"
    )
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "one version"),
        (("2",), "no version"),
        (("0.1.0",), "its tag exists"),
        (("0.3.0", "0.4.0"), "one version"),
    ],
)
def test_refused_with_nothing_changed(clone, arguments, reason):
    git(clone, "tag", "-a", "-m", "x", "v0.1.0")
    done = release(clone, *arguments)
    assert (done.returncode, reason in done.stderr, done.stderr.count("\n")) == (2, True, 1)
    assert git(clone, "status", "--porcelain") == ""


def test_a_version_without_words_is_refused(clone):
    (clone / "CHANGELOG.md").write_text(CHANGELOG.replace("[Unreleased]\n\n- New.", "[Unreleased]"))
    assert "has changes" in release(clone, "0.2.0").stderr
    git(clone, "commit", "-q", "-a", "-m", "Empty")
    assert "has nothing for 0.2.0" in release(clone, "0.2.0").stderr
