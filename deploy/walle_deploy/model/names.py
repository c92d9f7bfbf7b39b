"""Names of tasks and their versions across the platform.

A group is a folder (or a host) of git repositories. A scenario is a repository, a task a branch
in it, and a version an annotated tag (Walle, section 4.1). ``shop/ipv@v2`` is version ``v2`` of
the task ``ipv`` of the scenario ``shop``. Its tag is ``ipv/v2``, because tasks of a scenario share
its tags.
"""

import re
from typing import Final, Self

import msgspec

from walle_stream.errors import RefNotFoundError

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,98}[A-Za-z0-9])?")


class TaskRef(msgspec.Struct, frozen=True, order=True):
    """A task, or one version of it."""

    scenario: str
    """Name of a repository: letters, digits and ``-``, as in all names here."""
    task: str
    """Name of a branch, and of the task in its definition."""
    version: str = ""
    """Name of a tag without the task's prefix; empty for the task itself."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``SCENARIO/TASK`` or ``SCENARIO/TASK@VERSION``.

        Raises:
            RefNotFoundError: The text has another form, so no such task or version exists.
        """
        name, at, version = text.partition("@")
        scenario, _, task = name.partition("/")
        is_named = _NAME.fullmatch(scenario) and _NAME.fullmatch(task)
        # git check-ref-format refuses these names
        is_refused = ".." in version or version.endswith(".lock")
        if is_named and at and (is_refused or not _VERSION.fullmatch(version)):
            raise RefNotFoundError(
                f"{text[:200]!r} names no version: expected letters, digits and '._+-', such as v2"
            )
        if not is_named:
            raise RefNotFoundError(
                f"{text[:200]!r} names no task: expected SCENARIO/TASK or SCENARIO/TASK@VERSION, "
                "such as shop/ipv@v2; names have lower-case letters, digits and '-'"
            )
        return cls(scenario, task, version)

    @property
    def name(self) -> str:
        """``SCENARIO/TASK``."""
        return f"{self.scenario}/{self.task}"

    @property
    def tag(self) -> str:
        """Name of the version's tag in the scenario's repository."""
        return f"{self.task}/{self.version}"

    def __str__(self) -> str:
        """Return the text for ``parse``."""
        return f"{self.name}@{self.version}" if self.version else self.name
