"""Protection of versions in a group's repositories: a tag is made only once.

git's settings (``receive.denyDeletes``, ``denyNonFastForwards``) protect only branches. They also
let pass a deletion that claims an absent reference. So repositories of a folder have a hook. A
host's repositories must be protected at the host, see docs/deploy/tasks.md.
"""

import os
from pathlib import Path
from typing import Final

from walle_deploy.tasks.git import Git

_START: Final = "#!/bin/sh\n# written by walle"
_HOOK: Final = f"""{_START}, which brings it up to date: a version is made once
# git gives the reference, what whoever pushes says it is at, and what it shall be at; zeros are
# nothing. From nothing to nothing it deletes what there is, of branches, too, whatever it is set to
case "$2$3" in *[!0]*) ;; *)
    echo "$1 is not deleted: the push says that it is not there" >&2
    exit 1
esac
# of a new one that is there, git finds out; one of another form would stand in the way of a task
# or of versions, as git keeps names as files and folders
case "$2" in *[!0]*) ;; *)
    case "$1" in
    refs/heads/*/*)
        echo "$1 is no task: a branch has no / in its name" >&2
        exit 1 ;;
    refs/tags/*/*/*) ;;
    refs/tags/*/* | refs/heads/*) exit 0 ;;
    refs/tags/*) ;;
    *) exit 0 ;;
    esac
    echo "$1 is no version: a tag is named TASK/VERSION" >&2
    exit 1
esac
case "$1" in refs/tags/*) ;; *) exit 0 ;; esac
echo "$1 is a version: it does not move and is not deleted, make another one" >&2
exit 1
"""
_SETTINGS: Final = {
    # no push may discard commits
    "receive.denyNonFastForwards": "true",
    "receive.denyDeletes": "true",
    "receive.fsckObjects": "true",
    "gc.autoDetach": "false",
    # the group's own hooks, whatever the pushing user configured
    "core.hooksPath": "hooks",
}


def protect(repository: Path) -> None:
    """Configure a new repository.

    Raises:
        GitError: git refuses.
        OSError: The repository cannot be written.
    """
    git = Git(repository)
    for name, value in _SETTINGS.items():
        git.run("config", "--local", name, value)
    add_hook(repository)


def add_hook(repository: Path) -> None:
    """Write the hook if it is missing or an older one; a hook of another author stays.

    The repository is bare. Its lock is held, or no other process knows the repository.

    Raises:
        OSError: The hook cannot be written.
    """
    hook = repository / "hooks" / "update"
    text = hook.read_text(errors="replace") if os.path.lexists(hook) else ""
    if text and not text.startswith(_START):
        return
    if text == _HOOK and os.access(hook, os.X_OK):  # git ignores a hook that is not executable
        return
    hook.parent.mkdir(exist_ok=True)
    part = hook.with_name(".update.walle-part")
    part.write_text(_HOOK)
    part.chmod(0o755)
    part.replace(hook)
