"""Keeps versions as they are in a group's repositories: tags are made once.

git's own settings (``receive.denyDeletes``, ``denyNonFastForwards``) hold for branches alone, so
repositories of a folder have a hook. A host's must be protected there, see docs/deploy/tasks.md.
"""

import os
from pathlib import Path
from typing import Final

from walle_deploy.tasks.git import Git

_HOOK: Final = """\
#!/bin/sh
# written by walle: a version is made once
case "$1" in
refs/tags/*)
    case "$2" in
    *[!0]*)
        echo "$1 is a version: it does not move and is not deleted, make another one" >&2
        exit 1
        ;;
    esac
    ;;
esac
"""
_SETTINGS: Final = {
    # nobody's commits are thrown away
    "receive.denyNonFastForwards": "true",
    "receive.denyDeletes": "true",
    "receive.fsckObjects": "true",
    "gc.autoDetach": "false",
    # the group's own, whatever whoever pushes has for theirs
    "core.hooksPath": "hooks",
}


def protect(repository: Path) -> None:
    """Set a new repository up.

    Args:
        repository: A bare one of this machine.

    Raises:
        GitError: git refuses.
        OSError: It cannot be written.
    """
    git = Git(repository)
    for name, value in _SETTINGS.items():
        git.run("config", "--local", name, value)
    add_hook(repository)


def add_hook(repository: Path) -> None:
    """Write the hook where there is none; one of somebody else's stays.

    Args:
        repository: A bare one of this machine; its lock is held, or nobody else knows it.

    Raises:
        OSError: It cannot be written.
    """
    hook = repository / "hooks" / "update"
    if hook.exists():
        return
    hook.parent.mkdir(exist_ok=True)
    part = hook.with_name(f".update.{os.getpid()}")
    part.write_text(_HOOK)
    part.chmod(0o755)
    part.replace(hook)
