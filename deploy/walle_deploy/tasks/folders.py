"""A working folder: a clone of the scenario on the task's branch, as git makes one, too.

Which task it is, is the branch that is checked out; which group, its ``origin``. Place in the
flow: the commands that change something open it; ``publishing`` pushes what they make.
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
    """A locked working folder; see ``open_folder``. What git cannot do raises GitError."""

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
        """Return the commit that the files are of; empty before the first one."""
        return self.git.try_line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit; empty for an empty text."""
        return self.git.line("rev-parse", "--verify", f"{commit}^{{tree}}") if commit else ""

    def staged_tree(self) -> str:
        """Keep all files as they are now in a tree, the index untouched."""
        index = self.git.folder / "index"
        with self.git.own_index() as environ:
            if index.exists():
                # the user's knows which files did not change; with its time: a file that is as
                # old as the index is looked into by git, as it may have changed within that second
                shutil.copy2(index, environ["GIT_INDEX_FILE"])
            self.git.run("add", "--all", "--", ".", environ=environ)
            return self.git.run("write-tree", environ=environ).decode().strip()

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Say whether a commit is in the history of another; an empty text is in every one."""
        if not commit:
            return True
        return not self.git.attempt("merge-base", "--is-ancestor", commit, of).returncode


@contextmanager
def open_folder(folder: Path, ref: TaskRef | None = None) -> Iterator[WorkingFolder]:
    """Open the working folder that a path is in, and keep other commands out; blocks.

    Without ``ref`` it is that of the branch that is checked out.

    Raises:
        RefNotFoundError: It is no working folder of a task.
        GitError: git does not know who works here.
        ConflictError: Another command works in it for long, or it is of another scenario.
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
                    f"{top} is at a version, which does not change: walle task checkout "
                    f"{scenario}/TASK {top}"
                )
            ref = TaskRef.parse(f"{scenario}/{branch.removeprefix(HEADS)}")
        elif ref.scenario != scenario:
            raise ConflictError(f"{top} is of the scenario {scenario!r}: give another folder")
        yield WorkingFolder(top, git, lock, group, ref)


def _find(folder: Path) -> tuple[Path, Path]:
    start = folder.absolute()
    for parent in (start, *start.parents):
        inner = parent / ".git"
        if inner.is_dir():
            return parent, inner
    raise RefNotFoundError(
        f"{folder} is no working folder of a task: walle task checkout SCENARIO/TASK makes one"
    )
