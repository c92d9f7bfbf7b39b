"""Make a release: version, changelog, commit, tag, wheel, source archive, notes.

Usage: make release VERSION=0.2.0. It pushes nothing; its last line has the command. To undo a
release: ``git tag -d vVERSION`` and ``git reset --hard HEAD~``.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_UNRELEASED = "## [Unreleased]"


def main(arguments: list[str]) -> int:
    """Make the release, or print in one line why it cannot be made."""
    try:
        [version] = arguments
    except ValueError:
        return _refuse("expected one version: make release VERSION=0.2.0")
    if not _VERSION.fullmatch(version):
        return _refuse(f"{version} is no version: expected one such as 0.2.0 or 0.2.0rc1")
    if _git("status", "--porcelain"):
        return _refuse("the working tree has changes: commit them first")
    if _git("tag", "--list", f"v{version}"):
        return _refuse(f"v{version} is already released: its tag exists")
    changelog, package = ROOT / "CHANGELOG.md", ROOT / "walle_stream/__init__.py"
    try:
        dated, notes = with_version(changelog.read_text(), version, f"{datetime.now(UTC):%Y-%m-%d}")
    except ValueError as error:
        return _refuse(str(error))
    changelog.write_text(dated)
    package.write_text(
        re.sub(r'__version__ = "[^"]*"', f'__version__ = "{version}"', package.read_text())
    )
    folder = ROOT / "dist" / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "NOTES.md").write_text(notes)
    if _git("status", "--porcelain"):
        _git("commit", "-q", "-a", "-m", f"Release {version}")
    subprocess.check_call([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    _git("tag", "-a", f"v{version}", "-F", str(folder / "NOTES.md"), "--cleanup=whitespace")
    print(f"{folder.relative_to(ROOT)}: {', '.join(sorted(p.name for p in folder.iterdir()))}")
    print(f"publish: git push --follow-tags, then upload dist/{version} with its NOTES.md")
    return 0


def with_version(changelog: str, version: str, date: str) -> tuple[str, str]:
    """Return the changelog with the version's dated section, and the text of that section.

    Raises:
        ValueError: The changelog has no text for this version.
    """
    if f"## [{version}]" not in changelog:
        changelog = changelog.replace(_UNRELEASED, f"{_UNRELEASED}\n\n## [{version}] - {date}", 1)
    _, _, section = changelog.partition(f"## [{version}]")
    notes = section.partition("\n")[2].partition("\n## [")[0].strip()
    if not notes:
        raise ValueError(f"CHANGELOG.md has nothing for {version}: write it under {_UNRELEASED}")
    return changelog, f"walle_stream {version}\n\n{notes}\n"


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()  # noqa: S607  the user's own git


def _refuse(reason: str) -> int:
    print(f"no release: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
