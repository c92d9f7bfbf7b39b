"""New tasks and working folders: each is made beside its place, and moved there when complete.

``walle task init`` and ``walle task checkout`` use this module.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.committing import check_tree, make_commit
from walle_deploy.tasks.folders import WorkingFolder, open_folder
from walle_deploy.tasks.git import Git
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.mirrors import HEADS, TAGS, Mirror, open_mirror, remote_refs
from walle_deploy.tasks.protection import protect
from walle_deploy.tasks.publishing import fetch_branch, push
from walle_deploy.tasks.recovery import Move, move, recover
from walle_deploy.tasks.trees import list_tree
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import ConflictError, GitError, RefNotFoundError
from walle_stream.store.locks import is_file


class Clone(msgspec.Struct, frozen=True):
    """A working folder."""

    ref: TaskRef
    folder: Path
    commit: str
    """Commit of the files."""
    is_found: bool = False
    """Whether the group had the task already, with nothing after this person's first commit."""


def init_task(group: Group, ref: TaskRef, folder: Path) -> Clone:
    """Make a task with a definition, script, sample and test, and its scenario if needed; blocks.

    The folder must be missing or empty. The task of an earlier, killed call is returned, too.

    Raises:
        ConflictError: The task exists already, or the folder is not empty.
        GitError: git refuses, or does not know the user's name and address.
        RefNotFoundError: The host has no such repository.
    """
    if ref.version:
        raise RefNotFoundError(
            f"{ref}: walle task tag makes versions: here name only the task, {ref.name}"
        )
    if group.is_local:
        _make_repository(Path(group.address), ref)
    with _new_folder(folder) as part:
        git = Git(part / ".git", work_tree=part)
        _make_clone(git, group, ref)
        _copy_template(part, ref)
        with open_folder(part) as work:
            tree = work.staged_tree()
            check_tree(work, tree, ref)
            commit = make_commit(work, tree, "", f"Begin the task {ref.name}")
            upstream_commit = fetch_branch(work)
            if _has_versions(work) or (
                upstream_commit and not _is_own_start(work, upstream_commit, tree)
            ):
                taken: ConflictError = _exists(work, upstream_commit)
                raise taken
            if upstream_commit:
                commit = upstream_commit
            else:
                push(work, HEADS + ref.task, commit, "")
            move(work, Move(tree, tree, commit, ref.task, commit))
    return Clone(ref, folder, commit, is_found=bool(upstream_commit))


def checkout_task(group: Group, ref: TaskRef, folder: Path) -> Clone:
    """Put a task, or one version of it, into a folder; blocks.

    The folder must be missing or empty, or be a working folder without changes. A folder of a
    version is for reading and testing, not for commits.

    Raises:
        RefNotFoundError: The task or version does not exist.
        ConflictError: The folder has other contents, or changes that are not committed.
        GitError: The commit has a file that no task may have, or the group does not answer.
    """
    if (folder / ".git").is_dir():
        with open_folder(folder, ref) as work:
            recover(work)
            head = work.head()
            if work.staged_tree() != work.tree_of(head):
                raise ConflictError(
                    f"{folder} has changes that are not committed: commit them, or check out "
                    "into another folder"
                )
            with open_mirror(work.group, ref.scenario) as mirror:
                return _bring(work, mirror, folder)
    with open_mirror(group, ref.scenario) as mirror:
        mirror.commit(ref)  # refuses a missing version before a folder is made
        with _new_folder(folder) as part:
            _make_clone(Git(part / ".git", work_tree=part), group, ref)
            with open_folder(part, ref) as work:
                return _bring(work, mirror, folder)


def _bring(work: WorkingFolder, mirror: Mirror, folder: Path) -> Clone:
    ref, head = work.ref, work.head()
    commit = mirror.commit(ref)
    list_tree(mirror.git, commit, str(ref))
    if ref.version:
        wanted = f"{TAGS}{ref.tag}:{TAGS}{ref.tag}"
    else:
        wanted = f"+{HEADS}{ref.task}:refs/remotes/origin/{ref.task}"
    start = f"{TAGS}{ref.task}/"
    own = work.git.run("for-each-ref", "--format=%(refname)").decode().split()
    tags = [n for n in mirror.refs if n.startswith(start) and n not in own and n not in wanted]
    refspecs = [wanted, *(f"{name}:{name}" for name in tags)]
    work.git.fetch(str(mirror.git.folder), refspecs, is_network=False)
    branch = "" if ref.version else ref.task
    if branch:
        mine = work.git.try_line("rev-parse", "--verify", "--quiet", HEADS + branch)
        if not work.is_ancestor(mine, commit):
            raise ConflictError(
                f"{folder} has commits of {ref} that the group does not have: walle task commit "
                "pushes them (--rebase if others were first)"
            )
    upstream = commit if branch else ""
    target = Move(work.tree_of(head), work.tree_of(commit), commit, branch, upstream)
    move(work, target)
    return Clone(ref, folder, commit)


def _make_repository(group: Path, ref: TaskRef) -> None:
    path = group / f"{ref.scenario}.git"
    if path.is_dir():
        return
    try:
        group.mkdir(parents=True, exist_ok=True)
        with _new_folder(path) as part:
            git = Git(part)
            git.run(
                *("init", "--quiet", "--bare", "--template=", f"--initial-branch={ref.task}"),
                *("--", str(part)),
            )
            protect(part)
    except ConflictError:
        if not (path / "HEAD").is_file():  # else another command made it at this moment
            raise
    except OSError as error:
        raise GitError(f"{path} cannot be made: {error.strerror}: name another --group") from error


def _make_clone(git: Git, group: Group, ref: TaskRef) -> None:
    git.run(
        *("init", "--quiet", "--template=", f"--initial-branch={ref.task}"),
        *("--", str(git.work_tree)),
    )
    git.run("config", "--local", "remote.origin.url", group.url(ref.scenario))
    git.run("config", "--local", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    git.run("config", "--local", f"branch.{ref.task}.remote", "origin")
    git.run("config", "--local", f"branch.{ref.task}.merge", f"{HEADS}{ref.task}")


def _copy_template(folder: Path, ref: TaskRef) -> None:
    for template in sorted((shipped_configs() / "task-template").iterdir()):
        if template.is_file():
            content = template.read_bytes()
            content = content.replace(b"name: visit\n", f"name: {ref.task}\n".encode(), 1)
            name = ".gitignore" if template.name == "gitignore" else template.name
            (folder / name).write_bytes(content)


def _has_versions(work: WorkingFolder) -> bool:
    start = f"{TAGS}{work.ref.task}/"
    refs = remote_refs(work.git, work.group, work.ref.scenario)
    return any(name.startswith(start) for name in refs)


def _is_own_start(work: WorkingFolder, upstream_commit: str, tree: str) -> bool:
    # a killed init pushed this: the same author and the same files, with nothing before or after
    facts = work.git.line(
        "show", "--no-patch", "--no-show-signature", "--format=%P|%T|%ae", upstream_commit
    )
    return facts == f"|{tree}|{work.git.environ['GIT_AUTHOR_EMAIL']}"


def _exists(work: WorkingFolder, upstream_commit: str) -> ConflictError:
    if not upstream_commit:
        return ConflictError(
            f"the task {work.ref} has versions, but its branch was deleted in "
            f"{work.group.url(work.ref.scenario)}: restore it there, or choose another name"
        )
    form = "--format=the last commit is by %an, %ar"
    last = work.git.line("show", "--no-patch", "--no-show-signature", form, upstream_commit)
    return ConflictError(
        f"the task {work.ref} exists already ({last[:200]}): run walle task checkout {work.ref}"
    )


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder beside the wanted one, and move it into place if all went well.

    Raises:
        ConflictError: The folder is not empty, or another command made it.
        GitError: The folder cannot be made.
    """
    folder = folder.absolute()
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConflictError(f"{folder} is not empty: give another folder")
    part = folder.with_name(f".{folder.name}.walle-part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(part)
    except OSError as error:
        raise GitError(f"{folder} cannot be made: {error.strerror}: give another folder") from error
    try:
        for left in part.iterdir():  # from a killed command
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        yield part
        try:
            part.rename(folder)
        except OSError as error:
            raise ConflictError(
                f"another command made {folder} at this moment: give another folder"
            ) from error
    finally:
        if is_file(descriptor, part):
            shutil.rmtree(part, ignore_errors=True)
        os.close(descriptor)


def _locked(part: Path) -> int:
    while True:
        part.mkdir(exist_ok=True)
        descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_file(descriptor, part):
            return descriptor
        os.close(descriptor)  # the folder was moved into place during the wait
