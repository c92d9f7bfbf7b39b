"""Pushes of a commit or a tag to the group, which succeed as a whole or change nothing.

A push names the state that the group must still have. If another author was first, nothing changes
anywhere. The command notes the push before it begins, so that the next command after a kill knows
about it. The commands ``init``, ``commit`` and ``tag`` use this module.
"""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from walle_deploy.tasks.folders import WorkingFolder
from walle_deploy.tasks.git import Git, git_error
from walle_deploy.tasks.locks import RepositoryLock
from walle_deploy.tasks.mirrors import HEADS, TAGS, remote_refs
from walle_deploy.tasks.protection import add_hook
from walle_stream.errors import ConflictError, GitError

_REFUSED: Final = (
    *("stale info", "already exists", "fast-forward", "fetch first"),
    *("failed to update ref", "cannot lock ref", "incorrect old value"),
)


def fetch_branch(work: WorkingFolder) -> str:
    """Fetch the group's state of the task, and return its commit, empty for none; blocks.

    Raises:
        RefNotFoundError: The group has no such scenario.
        GitError: The group does not answer.
    """
    commit = remote_refs(work.git, work.group, work.ref.scenario).get(HEADS + work.ref.task, "")
    if commit and work.git.attempt("cat-file", "-e", f"{commit}^{{commit}}").returncode:
        work.git.fetch(work.url, [f"{HEADS}{work.ref.task}"])
    return commit


def upstream_tag(work: WorkingFolder, name: str) -> str:
    """Return the object of a tag (without ``refs/tags/``) in the group; empty for none.

    Raises:
        RefNotFoundError: The group has no such scenario.
        GitError: The group does not answer.
    """
    return remote_refs(work.git, work.group, work.ref.scenario).get(TAGS + name, "")


def push(work: WorkingFolder, name: str, object_id: str, expected: str) -> None:
    """Push a commit or a tag to a reference that is at ``expected``; "" if it must not exist.

    Raises:
        ConflictError: The reference has moved meanwhile.
        GitError: The group does not answer, or refuses.
    """
    arguments = (
        *("push", "--quiet", "--porcelain", "--atomic", "--no-follow-tags", "--no-verify"),
        *("--no-signed", "--recurse-submodules=no", f"--force-with-lease={name}:{expected}"),
        *("--", work.url, f"{object_id}:{name}"),
    )
    with ExitStack() as stack:
        git = work.git
        if work.group.is_local:
            # a kill of this command may leave git's own lock there, which the next command removes
            far = stack.enter_context(RepositoryLock(Path(work.url)))
            with suppress(OSError):  # a user without write access cannot push, either
                add_hook(Path(work.url))
            if far.left:
                far.note({})
            locks = (*git.locks, far.descriptor)
            git = Git(git.folder, environ=git.environ, locks=locks, is_near=True)
        process = git.attempt(*arguments, is_network=True)
    if not process.returncode:
        return
    output = (process.stdout + process.stderr).decode(errors="replace")
    if any(reason in output for reason in _REFUSED):
        work.lock.note({})  # the group does not have the object: nothing is left to finish
        raise ConflictError(
            f"{work.ref}: another person changed {name.removeprefix('refs/')} in "
            f"{work.group.address} at this moment: run the same command again"
        )
    failed: GitError = git_error(("push",), process.stderr + process.stdout, process.returncode)
    raise failed
