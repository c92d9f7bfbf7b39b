"""Commits of a working folder: a commit is checked and pushed to the group, or changes nothing.

The check reads exactly what is committed: the files are staged separately, exported, and read as a
build from a tag would read them. ``walle task commit`` uses this module.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.definitions import Definition, read_definition, user_paths
from walle_deploy.tasks.folders import WorkingFolder, open_folder
from walle_deploy.tasks.mirrors import HEADS
from walle_deploy.tasks.publishing import fetch_branch, push
from walle_deploy.tasks.recovery import Move, move, note_commit, recover
from walle_deploy.tasks.trees import export_files, list_tree
from walle_stream.errors import ConflictError, GitError

_CHECK: Final = "walle-check"
_NAMED: Final = 5


class Committed(msgspec.Struct, frozen=True):
    """Result of a commit."""

    ref: TaskRef
    commit: str
    """The folder's commit now."""
    files: tuple[str, ...]
    """Changed files; empty if there was nothing to commit."""
    is_rebased: bool = False
    """Whether the commit is on top of commits of others that were not here before."""
    mended: str = ""
    """Work of a killed command that was finished first."""


def commit_folder(folder: Path, message: str = "", *, rebase: bool = False) -> Committed:
    """Check a working folder, commit all of it and push it; blocks.

    Without a message, the commit's message names the files. ``rebase`` puts the commit on top of
    commits that others pushed meanwhile.

    Raises:
        ConflictError: Others pushed commits meanwhile, or changed the same lines.
        SpecFileError: A definition is wrong.
        ScriptError: The script is wrong.
        GitError: A task may not have a file, or the group refuses.
        RefNotFoundError: The folder is not a working folder, or the group does not exist.
    """
    with open_folder(folder) as work:
        mended = recover(work)
        tree, head, upstream = work.staged_tree(), work.head(), fetch_branch(work)
        is_behind = bool(upstream) and not work.is_ancestor(upstream, head)
        if tree == work.tree_of(head) and head == upstream:
            return Committed(work.ref, head, (), mended=mended)
        if is_behind and not rebase:
            behind: ConflictError = _somebody_was_first(work, head, upstream)
            raise behind
        parent = head
        if is_behind:
            mine = make_commit(work, tree, head, "as the files are")
            tree, parent, before = _merged(work, mine, upstream), upstream, tree
            if tree == work.tree_of(upstream):  # no change of the user's own is left
                move(work, Move(before, tree, upstream, work.ref.task, upstream))
                return Committed(work.ref, upstream, (), is_rebased=True, mended=mended)
        else:
            before = tree
        check_tree(work, tree, work.ref)
        files = _changed(work, work.tree_of(upstream), tree)
        commit = head
        if is_behind or tree != work.tree_of(head):
            commit = make_commit(work, tree, parent, message or f"Change {_listed(files)}")
        target = Move(before, tree, commit, work.ref.task, commit)
        note_commit(work, target)
        push(work, HEADS + work.ref.task, commit, upstream)
        move(work, target)
        return Committed(work.ref, commit, files, is_behind, mended)


def check_tree(work: WorkingFolder, tree: str, ref: TaskRef) -> Definition:
    """Check a tree as a build of a task, or of a coming version, would.

    Raises:
        GitError: A task may not have a file.
        SpecFileError: A definition is wrong.
        ScriptError: The script is wrong.
    """
    start = "" if work.folder == Path.cwd() else os.path.relpath(work.folder)
    files = list_tree(work.git, tree, start or str(ref))
    folder = work.git.folder / _CHECK
    shutil.rmtree(folder, ignore_errors=True)  # may be left by a kill
    folder.mkdir()
    try:
        export_files(work.git, files, folder, start or str(ref))
        with user_paths(f"{start}{os.sep}" if start else "", folder):
            return read_definition(ref, folder, [file.path for file in files])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_commit(work: WorkingFolder, tree: str, parent: str, message: str) -> str:
    """Make a commit outside any branch, and return its id; without ``parent`` it is the first.

    Raises:
        GitError: The commit cannot be written.
    """
    before = ("-p", parent) if parent else ()
    text = f"{message.strip()}\n".encode(errors="replace")
    return work.git.run("commit-tree", tree, *before, stdin=text).decode().strip()


def _merged(work: WorkingFolder, mine: str, upstream: str) -> str:
    """Return the tree of the user's commit merged with the group's commit.

    Raises:
        ConflictError: Both changed the same lines.
        GitError: git cannot merge.
    """
    process = work.git.attempt("merge-tree", "--write-tree", "--name-only", "-z", upstream, mine)
    parts = process.stdout.decode(errors="replace").split("\0")
    if process.returncode == 0:
        return parts[0]
    if process.returncode != 1:
        raise GitError(f"{work.ref}: git merge-tree failed: install git 2.38 or newer")
    files = sorted({*parts[1 : parts.index("", 1)]})
    raise ConflictError(
        f"{work.ref}: others changed the same lines of {_listed(files)}; nothing of yours was "
        "changed: run git add --all, git commit and git pull --rebase, choose there, then run "
        "walle task commit"
    )


def _somebody_was_first(work: WorkingFolder, head: str, upstream: str) -> ConflictError:
    form = "--format=%an, %ar: %s"
    last = work.git.line("log", "-1", "--no-show-signature", form, upstream)
    count = work.git.line("rev-list", "--count", upstream, *([f"^{head}"] if head else []))
    files = _changed(work, work.tree_of(head), work.tree_of(upstream))
    return ConflictError(
        f"{work.ref}: others committed meanwhile ({count}; the last by {last[:200]}) and changed "
        f"{_listed(files)}; nothing of yours was changed: walle task commit --rebase puts your "
        "changes on top"
    )


def _listed(names: Sequence[str]) -> str:
    """Return the first names and the number of the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" or "nothing"


def _changed(work: WorkingFolder, before: str, after: str) -> tuple[str, ...]:
    if not before:
        listed = work.git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", after)
    else:
        arguments = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after)
        listed = work.git.run(*arguments)
    return tuple(listed.decode(errors="replace").split("\0")[:-1])
