"""A working folder: an ordinary git clone of the scenario, on the task's branch.

The checked-out branch names the task, and ``origin`` names the group. The commands that change
something open the folder; ``publishing`` pushes the results.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.git import Git
from walle_deploy.tasks.groups import Group, group_of_url
from walle_deploy.tasks.locks import RepositoryLock
from walle_deploy.tasks.mirrors import HEADS
from walle_stream.errors import ConflictError, GitError, RefNotFoundError


@dataclass(frozen=True)
class WorkingFolder:
    """A locked working folder; see ``open_folder``. Failures of git raise GitError."""

    folder: Path
    git: Git
    lock: RepositoryLock
    group: Group
    ref: TaskRef

    @property
    def url(self) -> str:
        """The scenario's repository in the group."""
        return self.group.url(self.ref.scenario)

    def head(self) -> str:
        """Return the commit of the files; empty before the first commit."""
        return self.git.try_line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit; empty for an empty id."""
        return self.git.line("rev-parse", "--verify", f"{commit}^{{tree}}") if commit else ""

    def staged_tree(self) -> str:
        """Store all current files in a tree, and leave the index unchanged."""
        index = self.git.folder / "index"
        with self.git.own_index() as environ:
            if index.exists():
                # the user's index knows which files did not change. The copy keeps its time, as git
                # reads a file as old as the index again: it may have changed within that second
                shutil.copy2(index, environ["GIT_INDEX_FILE"])
            self.git.run("add", "--all", "--", ".", environ=environ)
            return self.git.run("write-tree", environ=environ).decode().strip()

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Return whether a commit is in the history of another; an empty id always is."""
        if not commit:
            return True
        return not self.git.attempt("merge-base", "--is-ancestor", commit, of).returncode


@contextmanager
def open_folder(folder: Path, ref: TaskRef | None = None) -> Iterator[WorkingFolder]:
    """Open the working folder that contains a path, and keep other commands out; blocks.

    Without ``ref`` the task is that of the checked-out branch.

    Raises:
        RefNotFoundError: The path is not in a working folder of a task.
        GitError: git does not know the user's name and address.
        ConflictError: Another command keeps the folder locked, or the scenario is another one.
    """
    top, inner = _find(folder)
    with RepositoryLock(inner) as lock:
        git = Git(inner, work_tree=top, locks=(lock.descriptor,))
        git.environ |= git.identity()
        url = git.try_line("config", "--local", "--get", "remote.origin.url")
        group, scenario = group_of_url(url)
        branch = git.try_line("symbolic-ref", "--quiet", "HEAD")
        if ref is None:
            if not branch:
                raise GitError(
                    f"{top} is at a version, which does not change: run walle task checkout "
                    f"{scenario}/TASK {top}"
                )
            ref = TaskRef.parse(f"{scenario}/{branch.removeprefix(HEADS)}")
        elif ref.scenario != scenario:
            raise ConflictError(f"{top} belongs to the scenario {scenario!r}: give another folder")
        yield WorkingFolder(top, git, lock, group, ref)


def _find(folder: Path) -> tuple[Path, Path]:
    start = folder.absolute()
    for parent in (start, *start.parents):
        inner = parent / ".git"
        if inner.is_dir():
            return parent, inner
    raise RefNotFoundError(
        f"{folder} is not a working folder of a task: walle task checkout SCENARIO/TASK makes one"
    )
