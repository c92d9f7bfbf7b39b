"""Moves a working folder from one commit to another, and finishes what a kill interrupted.

Every step can be done again: a file is written only where it has the old content, or
the new one already. The folder's lock notes the step first.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from walle_deploy.tasks.folders import WorkingFolder
from walle_deploy.tasks.mirrors import HEADS, TAGS
from walle_deploy.tasks.publishing import fetch_branch, upstream_tag
from walle_stream.errors import ConflictError


class Move(msgspec.Struct, frozen=True):
    """Where a working folder goes."""

    from_tree: str
    """What its files are now; empty: there are none."""
    to_tree: str
    commit: str
    """What the folder is at then."""
    branch: str = ""
    """The task; empty: at a version."""
    upstream: str = ""
    """What the group's branch is at."""


def move(work: WorkingFolder, target: Move) -> None:
    """Bring files, branch and index to a commit; what is to be done is noted in the lock.

    Raises:
        ConflictError: A file was edited after a kill, so that it is neither as before nor after.
        GitError: A file cannot be written.
    """
    work.lock.note({"do": "move", **msgspec.to_builtins(target)})
    _move(work, target)
    work.lock.note({})


def recover(work: WorkingFolder) -> str:
    """Finish what a killed command began, or forget it where it reached nobody; blocks.

    What was finished is returned for people; empty: nothing was left.

    Raises:
        ConflictError: A file was edited after the kill.
        GitError: The group does not answer.
    """
    left = work.lock.left
    summary = ""
    match left.get("do"):
        case "commit" if _is_pushed(work, left):
            _move(work, msgspec.convert(left, Move))
            summary = f"the commit {left['commit'][:12]} of a command that was killed"
        case "tag" if upstream_tag(work, left["name"]) == left["tag"]:
            work.git.run("update-ref", TAGS + left["name"], left["tag"])
            summary = f"the tag {left['name']} of a command that was killed"
        case "move":
            _move(work, msgspec.convert(left, Move))
            summary = "a checkout that was killed"
    work.lock.note({})
    return summary


def note_commit(work: WorkingFolder, target: Move) -> None:
    """Note that a commit is about to be pushed."""
    work.lock.note({"do": "commit", **msgspec.to_builtins(target)})


def _is_pushed(work: WorkingFolder, left: Mapping[str, str]) -> bool:
    upstream = fetch_branch(work)
    return bool(upstream) and work.is_ancestor(left["commit"], upstream)


def _move(work: WorkingFolder, target: Move) -> None:
    git = work.git
    if target.from_tree != target.to_tree:
        _update_files(work, target.from_tree, target.to_tree)
    if target.branch:
        git.run("update-ref", HEADS + target.branch, target.commit)
        git.run("symbolic-ref", "HEAD", HEADS + target.branch)
        if target.upstream:
            git.run("update-ref", "refs/remotes/origin/" + target.branch, target.upstream)
    else:
        git.run("update-ref", "--no-deref", "HEAD", target.commit)
    git.run("read-tree", target.commit)
    git.attempt("update-index", "-q", "--refresh")


def _update_files(work: WorkingFolder, before: str, after: str) -> None:
    changes = _changes(work, before, after)
    content_ids = _content_ids(work, list(changes))
    edited = [path for path, ids in changes.items() if content_ids[path] not in ids]
    if edited:
        raise ConflictError(
            f"{work.folder / edited[0]} was edited while a command that was killed was not done "
            f"({len(edited)} such files): move it away, run the command again, then put it back"
        )
    written = [path for path, (_, new) in changes.items() if new]
    for path, (_, new) in changes.items():
        if not new:
            _remove(work.folder, path)
    if written:
        names = b"".join(path.encode() + b"\0" for path in written)
        with work.git.own_index() as environ:
            work.git.run("read-tree", after, environ=environ)
            work.git.run("checkout-index", "--force", "-z", "--stdin", stdin=names, environ=environ)


def _changes(work: WorkingFolder, before: str, after: str) -> dict[str, tuple[str, str]]:
    """Return the blobs before and after of each path that differs; empty where there is none."""
    if before:
        arguments = ("diff-tree", "-r", "-z", "--no-renames", "--raw", before, after)
        parts = work.git.run(*arguments).decode().split("\0")[:-1]
        changes = {}
        for facts, path in zip(parts[::2], parts[1::2], strict=True):
            _, _, old, new, _ = facts.split()
            changes[path] = (old.strip("0") and old, new.strip("0") and new)
        return changes
    listed = work.git.run("ls-tree", "-r", "-z", "--full-tree", after).decode().split("\0")[:-1]
    return {entry.partition("\t")[2]: ("", entry.split()[2]) for entry in listed}


def _content_ids(work: WorkingFolder, paths: list[str]) -> dict[str, str]:
    """Return the blob that each file would be now; empty where there is none."""
    files = ((path, work.folder / path) for path in paths)
    existing = [path for path, file in files if file.is_file() and not file.is_symlink()]
    names = "".join(f"{path}\n" for path in existing).encode()
    # with the conversions of .gitattributes, as add has them
    ids = work.git.run("hash-object", "--stdin-paths", stdin=names).decode().split()
    return dict.fromkeys(paths, "") | dict(zip(existing, ids, strict=True))


def _remove(folder: Path, path: str) -> None:
    file = folder / path
    file.unlink(missing_ok=True)
    for parent in file.parents:
        if parent == folder:
            break
        try:
            parent.rmdir()
        except OSError:
            break
