"""A group: the folder or host with the scenarios' repositories.

The user names the group once (``--group`` or ``WALLE_GROUP``). Commands find repositories in it by
the scenario's name.
"""

import os
import re
from pathlib import Path
from typing import Final, Self

import msgspec

from walle_deploy.model.names import TaskRef
from walle_stream.errors import RefNotFoundError

GROUP_VARIABLE: Final = "WALLE_GROUP"
CACHE_VARIABLE: Final = "WALLE_CACHE"
"""Environment variable with the folder for copies of repositories."""

_URL: Final = re.compile(r"(?:ssh|https?|file)://[^\s\x00-\x1f-][^\s\x00-\x1f]*")
_SCP: Final = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^\s\x00-\x1f]+")
_PASSWORD: Final = re.compile(r"\w+://[^/@]*:[^/@]*@")
_SUFFIX: Final = ".git"


class Group(msgspec.Struct, frozen=True):
    """The location of the repositories."""

    address: str
    """An absolute folder, or the part of a URL before ``/shop.git``."""
    is_local: bool
    """Whether the group is a local folder, in which walle can make and list repositories."""

    @classmethod
    def parse(cls, text: str | None = None) -> Self:
        """Read the name of a group; None takes it from the environment.

        The name is a folder, ``ssh://HOST/PATH``, ``https://...``, ``file://...`` or
        ``USER@HOST:PATH``.

        Raises:
            RefNotFoundError: The name is missing, has another form, or contains a password.
        """
        address = os.environ.get(GROUP_VARIABLE, "") if text is None else text
        if not address:
            raise RefNotFoundError(
                f"no group is named: give --group FOLDER or URL, or set {GROUP_VARIABLE}"
            )
        if _PASSWORD.match(address):
            raise RefNotFoundError(
                "the group's URL contains a password, which would appear in files and messages: "
                "keep it with git (git help credentials) and leave it out"
            )
        if _URL.fullmatch(address) or _SCP.fullmatch(address):
            return cls(address.rstrip("/"), is_local=False)
        if "://" in address or "::" in address or "\0" in address:
            raise RefNotFoundError(
                f"{address[:200]!r} names no group: expected a folder, ssh://, https:// or file://"
            )
        return cls(str(Path(address).absolute()), is_local=True)

    def url(self, scenario: str) -> str:
        """Return the URL of a scenario's repository for git."""
        return f"{self.address}/{scenario}{_SUFFIX}"

    def scenarios(self) -> list[str]:
        """Return the names of the scenarios, sorted; blocks.

        Raises:
            RefNotFoundError: The folder does not exist, or the group is a host, which has no list.
        """
        if not self.is_local:
            raise RefNotFoundError(
                f"{self.address} cannot be asked for its scenarios: name one, such as "
                "walle task list shop"
            )
        folder = Path(self.address)
        if not folder.is_dir():
            raise RefNotFoundError(
                f"there is no group {folder}: walle task init SCENARIO/TASK makes it"
            )
        names = (path.stem for path in folder.glob(f"*{_SUFFIX}") if path.is_dir())
        return sorted(name for name in names if is_name(name))


def group_of_url(url: str) -> tuple[Group, str]:
    """Return the group and the scenario of a repository's URL.

    Raises:
        RefNotFoundError: The URL is not that of a scenario.
    """
    address, _, name = url.rstrip("/").rpartition("/")
    scenario = name.removesuffix(_SUFFIX)
    if not address or not is_name(scenario):
        raise RefNotFoundError(
            f"the repository's origin {url[:200]!r} is not a scenario of a group: expected "
            "GROUP/SCENARIO.git"
        )
    return Group.parse(address), scenario


def cache_folder() -> Path:
    """Return the folder of copies and checkouts, which may be deleted at any time."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return Path(caches or Path.home() / ".cache").absolute() / "walle" / "tasks"


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a scenario or a task."""
    try:
        TaskRef.parse(f"{text}/{text}")
    except RefNotFoundError:
        return False
    return True
