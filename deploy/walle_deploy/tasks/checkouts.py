"""Checkouts of commits in the cache, by repository and commit.

A checkout is made beside its place, under the mirror's lock, and then moved there. So a kill leaves
no partial checkout, and an altered one is made again. Callers resolve a tag to a commit first,
because tags can move and commits cannot.
"""

import shutil
from pathlib import Path
from typing import Final

from walle_deploy.tasks.mirrors import Mirror
from walle_deploy.tasks.trees import TreeFile, export_files, is_whole, list_tree

_KEPT: Final = 20


def checkout(mirror: Mirror, commit: str, origin: str) -> tuple[Path, list[TreeFile]]:
    """Return a folder with a commit's files, and the list of the files; blocks.

    Callers must not change the files. An open mirror is locked, which also locks its checkouts.

    Raises:
        GitError: The commit has a file that no task may have.
        OSError: The disk is full.
    """
    files = list_tree(mirror.git, commit, origin)
    home = mirror.git.folder.with_suffix("").parent.parent / "checkouts-1" / mirror.git.folder.stem
    folder = home / commit
    if folder.is_dir() and is_whole(files, folder):
        folder.touch()
        return folder, files
    home.mkdir(parents=True, exist_ok=True)
    # the lock keeps other commands out, so a kill left any part here
    for left in [*home.glob(".part-*"), *([folder] if folder.exists() else [])]:
        shutil.rmtree(left)
    part = home / f".part-{commit}"
    part.mkdir()
    try:
        export_files(mirror.git, files, part, origin)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    part.rename(folder)
    by_age = sorted(home.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_age[_KEPT:]:
        shutil.rmtree(old)
    return folder, files
