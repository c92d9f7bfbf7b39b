"""New versions: a version is an annotated tag on the group's commit of the task.

``walle task tag`` uses this module. Releases and builds begin with a tag.
"""

from pathlib import Path

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.committing import check_tree
from walle_deploy.tasks.folders import WorkingFolder, open_folder
from walle_deploy.tasks.mirrors import TAGS, seen_version
from walle_deploy.tasks.publishing import fetch_branch, push, upstream_tag
from walle_deploy.tasks.recovery import recover
from walle_stream.errors import ConflictError, GitError


class Tagged(msgspec.Struct, frozen=True):
    """A new version."""

    ref: TaskRef
    commit: str
    mended: str = ""
    """Work of a killed command that was finished first."""


def tag_version(folder: Path, version: str, message: str = "") -> Tagged:
    """Make a version, such as ``v2``, of the folder's commit in the group; blocks.

    The folder's files must be committed. An empty message becomes the version's name.

    Raises:
        ConflictError: The version exists already, or another author made it at this moment.
        GitError: The folder has changes that are not committed, or the group refuses.
        RefNotFoundError: The name is invalid, the folder is not a working folder, or the group is
            missing.
        SpecFileError: A definition is wrong, or names another version.
        ScriptError: The script is wrong.
    """
    with open_folder(folder) as work:
        mended = recover(work)
        ref = TaskRef.parse(f"{work.ref.name}@{version}")
        head = _committed_head(work)
        _refuse_existing(work, ref, head, mended)
        if upstream_tag(work, ref.tag):  # a killed command made exactly this tag
            return Tagged(ref, head, mended)
        check_tree(work, work.tree_of(head), ref)
        tag = _make_tag(work, ref, head, message or str(ref))
        work.lock.note({"do": "tag", "tag": tag, "name": ref.tag})
        push(work, TAGS + ref.tag, tag, "")
        work.git.run("update-ref", TAGS + ref.tag, tag)
        work.lock.note({})
        return Tagged(ref, head, mended)


def _committed_head(work: WorkingFolder) -> str:
    head = work.head()
    if work.staged_tree() != work.tree_of(head):
        raise GitError(
            f"{work.folder} has changes that are not committed: run walle task commit, or revert "
            "them, then tag"
        )
    upstream = fetch_branch(work)
    if not upstream or not work.is_ancestor(head, upstream):
        raise GitError(
            f"{work.folder} has commits that {work.group.address} does not have: push them with "
            "walle task commit, then tag"
        )
    return head


def _refuse_existing(work: WorkingFolder, ref: TaskRef, head: str, mended: str) -> None:
    upstream = upstream_tag(work, ref.tag)
    here = work.git.try_line("rev-parse", "--verify", "--quiet", TAGS + ref.tag)
    if here and upstream and here != upstream:
        raise ConflictError(
            f"the version {ref} was moved: its tag is {here[:12]} here and {upstream[:12]} in "
            f"{work.group.address}; versions do not move: ask who moved it, and choose another name"
        )
    if not upstream and (here or seen_version(work.group, ref)):
        raise ConflictError(
            f"the version {ref} was deleted in {work.group.address}, and names are not used again: "
            "choose another name"
        )
    if not upstream:
        return
    is_just_mended = ref.tag in mended.split()
    peeled = work.git.try_line("rev-parse", "--verify", "--quiet", f"{TAGS}{ref.tag}^{{commit}}")
    if is_just_mended and peeled == head:
        return
    raise ConflictError(f"the version {ref} exists already and cannot change: name the next one")


def _make_tag(work: WorkingFolder, ref: TaskRef, commit: str, message: str) -> str:
    who = work.git.line("var", "GIT_COMMITTER_IDENT")
    text = f"object {commit}\ntype commit\ntag {ref.tag}\ntagger {who}\n\n{message.strip()}\n"
    return work.git.run("mktag", stdin=text.encode(errors="replace")).decode().strip()
