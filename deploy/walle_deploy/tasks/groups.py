"""A group: the folder or host that holds the scenarios' repositories.

Place in the flow: the commands name it once (``--group`` or ``WALLE_GROUP``); repositories are
found in it by the scenario's name.
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
"""Name of the environment variable that says where copies of repositories are kept."""

_URL: Final = re.compile(r"(?:ssh|https?|file)://[^\s\x00-\x1f-][^\s\x00-\x1f]*")
_SCP: Final = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^\s\x00-\x1f]+")
_PASSWORD: Final = re.compile(r"\w+://[^/@]*:[^/@]*@")
_SUFFIX: Final = ".git"


class Group(msgspec.Struct, frozen=True):
    """Where the repositories are."""

    address: str
    """An absolute folder, or the part of a URL that stands before ``shop.git``."""
    is_local: bool
    """Whether it is a folder of this machine, where repositories can be made and listed."""

    @classmethod
    def parse(cls, text: str | None = None) -> Self:
        """Read what names a group; None takes it from the environment.

        It is a folder, ``ssh://HOST/PATH``, ``https://...``, ``file://...`` or ``USER@HOST:PATH``.

        Raises:
            RefNotFoundError: Nothing names one, it is none of these, or it holds a password.
        """
        address = os.environ.get(GROUP_VARIABLE, "") if text is None else text
        if not address:
            raise RefNotFoundError(
                f"no group is named: give --group FOLDER or URL, or set {GROUP_VARIABLE}"
            )
        if _PASSWORD.match(address):
            raise RefNotFoundError(
                "the group's URL holds a password: it would stand in files and messages; keep it "
                "with git (git help credentials) and leave it out"
            )
        if _URL.fullmatch(address) or _SCP.fullmatch(address):
            return cls(address.rstrip("/"), is_local=False)
        if "://" in address or "::" in address or "\0" in address:
            raise RefNotFoundError(
                f"{address[:200]!r} names no group: expected a folder, ssh://, https:// or file://"
            )
        return cls(str(Path(address).absolute()), is_local=True)

    def url(self, scenario: str) -> str:
        """Return what git calls a scenario's repository."""
        return f"{self.address}/{scenario}{_SUFFIX}"

    def scenarios(self) -> list[str]:
        """Return the names of the scenarios, sorted; blocks.

        Raises:
            RefNotFoundError: There is no such folder, or it is of a host, which cannot be asked.
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
        RefNotFoundError: It is not of a scenario.
    """
    address, _, name = url.rstrip("/").rpartition("/")
    scenario = name.removesuffix(_SUFFIX)
    if not address or not is_name(scenario):
        raise RefNotFoundError(
            f"the repository's origin {url[:200]!r} is no scenario of a group: expected "
            "GROUP/SCENARIO.git"
        )
    return Group.parse(address), scenario


def cache_folder() -> Path:
    """Return where copies of repositories and checkouts are kept; it can be deleted any time."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return Path(caches or Path.home() / ".cache").absolute() / "walle" / "tasks"


def is_name(text: str) -> bool:
    """Say whether a text can be the name of a scenario or a task."""
    try:
        TaskRef.parse(f"{text}/{text}")
    except RefNotFoundError:
        return False
    return True
