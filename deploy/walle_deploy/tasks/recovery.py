"""Moves of a working folder from one commit to another, and recovery after a kill.

Every step can be repeated: a file is written only if it has the old content, or already the new
one. The folder's lock notes the step first.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from walle_deploy.tasks.folders import WorkingFolder
from walle_deploy.tasks.mirrors import HEADS, TAGS
from walle_deploy.tasks.publishing import fetch_branch, upstream_tag
from walle_stream.errors import ConflictError


class Move(msgspec.Struct, frozen=True):
    """A move of a working folder."""

    from_tree: str
    """Tree of the current files; empty for none."""
    to_tree: str
    commit: str
    """The folder's commit after the move."""
    branch: str = ""
    """Branch of the task; empty for a version."""
    upstream: str = ""
    """Commit of the group's branch."""


def move(work: WorkingFolder, target: Move) -> None:
    """Bring files, branch and index to a commit; the lock notes the move first.

    Raises:
        ConflictError: A file was edited after a kill, and has neither the old nor the new content.
        GitError: A file cannot be written.
    """
    work.lock.note({"do": "move", **msgspec.to_builtins(target)})
    _move(work, target)
    work.lock.note({})


def recover(work: WorkingFolder) -> str:
    """Finish the work of a killed command, or drop it if it did not reach the group; blocks.

    The result describes the finished work for people; empty for none.

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
            f"{work.folder / edited[0]} was edited after a command was killed half-way "
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
    """Return the old and new blob of each path that differs; empty for a missing file."""
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
    """Return the blob id of each file's current content; empty for a missing file."""
    files = ((path, work.folder / path) for path in paths)
    existing = [path for path, file in files if file.is_file() and not file.is_symlink()]
    names = "".join(f"{path}\n" for path in existing).encode()
    # with the conversions of .gitattributes, as git add applies them
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
