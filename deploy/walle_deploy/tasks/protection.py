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
# git gives the reference, its object before according to the push, and its object after; zeros
# mean none. A push from none to none deletes any reference, also a branch, despite git's settings
case "$2$3" in *[!0]*) ;; *)
    echo "$1 is not deleted: the push says that it does not exist" >&2
    exit 1
esac
# git itself finds a new reference that exists already. A name of another form could collide with
# a task or a version, because git stores names as files and folders
case "$2" in *[!0]*) ;; *)
    case "$1" in
    refs/heads/*/*)
        echo "$1 is not a task: a branch has no / in its name" >&2
        exit 1 ;;
    refs/tags/*/*/*) ;;
    refs/tags/*/* | refs/heads/*) exit 0 ;;
    refs/tags/*) ;;
    *) exit 0 ;;
    esac
    echo "$1 is not a version: a tag is named TASK/VERSION" >&2
    exit 1
esac
case "$1" in refs/tags/*) ;; *) exit 0 ;; esac
echo "$1 is a version, which cannot be moved or deleted: make another one" >&2
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
