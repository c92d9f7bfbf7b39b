"""A copy of a scenario's repository in the cache, from which everything is read.

Each access to the group updates the copy. The copy keeps the tags that it has seen, so a tag that
was moved upstream is noticed: versions do not move. The copy stands between the group and all code
that reads versions.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.git import Git, git_error
from walle_deploy.tasks.groups import Group, cache_folder, is_name
from walle_deploy.tasks.locks import RepositoryLock
from walle_stream.errors import ConflictError, GitError, RefNotFoundError
from walle_stream.spec.suggestions import instead

HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
_ABSENT: Final = re.compile(
    r"not appear to be a git repository|does not exist|[Nn]ot found|could not be found"
)


@dataclass(frozen=True)
class Mirror:
    """The copy of one repository at the time of its opening; see ``open_mirror``."""

    scenario: str
    url: str
    """URL of the repository in the group."""
    git: Git
    """Git on the copy."""
    refs: Mapping[str, str]
    """Object ids in the group by full name of the reference, at the time of the opening."""

    def commit(self, ref: TaskRef) -> str:
        """Return the commit of a task's last state, or of a version.

        Raises:
            RefNotFoundError: The task or version does not exist; the message suggests names.
            ConflictError: The version was moved since it was first seen here.
        """
        if not ref.version:
            commit = self.refs.get(HEADS + ref.task)
            if commit is None:
                raise self._no_task(ref)
            return commit
        name = TAGS + ref.tag
        tag = self.refs.get(name)
        known = _object(self.git, name)
        if tag is None:
            raise self._no_version(ref, known)
        if known != tag:
            raise ConflictError(
                f"the version {ref} was moved: its tag was {known[:12]} when it was first seen "
                f"here, and is {tag[:12]} in {self.url}; versions do not move: ask who moved it, "
                f"make another version, and if necessary delete {self.git.folder}"
            )
        if self.git.line("cat-file", "-t", tag) != "tag":
            raise RefNotFoundError(
                f"{ref}: its tag {ref.tag} is lightweight, but a version is an annotated tag: make "
                "one with walle task tag"
            )
        return self.git.line("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}")

    def tasks(self) -> list[str]:
        """Return the names of all tasks, sorted, without branches that cannot be tasks."""
        names = (name.removeprefix(HEADS) for name in self.refs if name.startswith(HEADS))
        return sorted(name for name in names if is_name(name))

    def versions(self, task: str) -> list[str]:
        """Return the versions of a task, sorted."""
        start = f"{TAGS}{task}/"
        return sorted(name.removeprefix(start) for name in self.refs if name.startswith(start))

    def _no_task(self, ref: TaskRef) -> RefNotFoundError:
        return RefNotFoundError(
            f"there is no task {ref.name} in {self.url}{instead(ref.task, self.tasks())}"
        )

    def _no_version(self, ref: TaskRef, known: str) -> RefNotFoundError:
        if HEADS + ref.task not in self.refs:
            return self._no_task(ref)
        if known:
            return RefNotFoundError(
                f"the version {ref} was deleted in {self.url}: its tag was {known[:12]} when it "
                "was first seen here"
            )
        return RefNotFoundError(
            f"there is no version {ref}{instead(ref.version, self.versions(ref.task))}"
        )


@contextmanager
def open_mirror(group: Group, scenario: str) -> Iterator[Mirror]:
    """Update the copy of a scenario, and lock it against other commands; blocks.

    Raises:
        RefNotFoundError: The group has no such scenario.
        GitError: The group does not answer, or git refuses its contents.
    """
    url = group.url(scenario)
    folder = _folder(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GitError(f"the cache {folder} cannot be made: {error.strerror}") from error
    with RepositoryLock(folder) as lock:
        git = Git(folder, locks=(lock.descriptor,))
        if not (folder / "refs").is_dir() or not (folder / "HEAD").is_file():
            git.run("init", "--quiet", "--bare", "--template=", "--", str(folder))
        refs = remote_refs(git, group, scenario)
        _fetch(git, url, refs)
        lock.note({})
        yield Mirror(scenario, url, git, refs)


def seen_version(group: Group, ref: TaskRef) -> str:
    """Return the tag of a version as last seen on this machine; empty if never seen.

    This function does not ask the group.
    """
    folder = _folder(group.url(ref.scenario))
    if not (folder / "HEAD").is_file():
        return ""
    return _object(Git(folder), TAGS + ref.tag)


def remote_refs(git: Git, group: Group, scenario: str) -> dict[str, str]:
    """Ask the group for a scenario's branches and tags; blocks.

    Returns:
        Object ids by full name of the reference. References that cannot be a task or a version are
        left out, because one may collide with a valid name, as a file with a folder.

    Raises:
        RefNotFoundError: The group has no such scenario.
        GitError: The group does not answer.
    """
    url = group.url(scenario)
    arguments = ("ls-remote", "--quiet", "--refs", "--heads", "--tags", "--", url)
    process = git.attempt(*arguments, is_network=True)
    if process.returncode:
        if _ABSENT.search(process.stderr.decode(errors="replace")):
            if not group.is_local:
                raise RefNotFoundError(
                    f"there is no scenario {scenario!r} in {group.address}: make an empty "
                    "repository at the host, or check whether you may read it"
                )
            names = group.scenarios()
            if scenario in names:
                raise GitError(
                    f"git finds no repository at {url}: it is damaged (git fsck), or an insteadOf "
                    "in your git configuration leads elsewhere (git config --show-origin "
                    "--get-regexp insteadof)"
                )
            raise RefNotFoundError(
                f"there is no scenario {scenario!r} in {group.address}{instead(scenario, names)}"
            )
        failed: GitError = git_error(arguments, process.stderr, process.returncode)
        raise failed
    lines = (line.partition(b"\t") for line in process.stdout.split(b"\n"))
    # other names may contain characters that end lines elsewhere, or may not be UTF-8
    named = (
        (name.decode(errors="replace"), object_id.decode()) for object_id, _, name in lines if name
    )
    return {name: object_id for name, object_id in named if _is_ours(name)}


def _is_ours(name: str) -> bool:
    if name.startswith(HEADS):
        return is_name(name.removeprefix(HEADS))
    task, _, version = name.removeprefix(TAGS).partition("/")
    try:
        ref = TaskRef.parse(f"any/{task}@{version}")
    except RefNotFoundError:
        return False
    return name == TAGS + ref.tag


def _object(git: Git, name: str) -> str:
    """Return the object of the reference with exactly this name, or "" if it does not exist."""
    return git.try_line("show-ref", "--verify", "--hash", "--", name)


def _folder(url: str) -> Path:
    key = hashlib.sha256(url.encode()).hexdigest()[:24]
    return cache_folder() / "git-1" / f"{key}.git"


def _fetch(git: Git, url: str, refs: Mapping[str, str]) -> None:
    form = "--format=%(refname) %(objectname)"
    lines = git.run("for-each-ref", form).decode().splitlines()
    have = dict(line.split(" ") for line in lines)
    heads = [name for name in refs if name.startswith(HEADS) and have.get(name) != refs[name]]
    # a tag in the copy keeps its first object
    tags = [name for name in refs if name.startswith(TAGS) and name not in have]
    deleted = [name for name in have if name.startswith(HEADS) and name not in refs]
    if deleted:
        # before the fetch, because 'a' may now stand where 'a/b' was
        git.run(
            "update-ref", "--stdin", stdin=b"".join(b"delete %b\n" % g.encode() for g in deleted)
        )
    if heads or tags:
        git.fetch(url, [*(f"+{name}:{name}" for name in heads), *(f"{n}:{n}" for n in tags)])
