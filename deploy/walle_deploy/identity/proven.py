"""Proven identities, and the port of authenticators."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from walle_deploy.model.owners import device_problem
from walle_stream.errors import IdentityError

if TYPE_CHECKING:
    from walle_deploy.policy.files import WatchedFile


type Role = Literal["device", "relay", "anybody"]
"""A relay brings the reports of other devices; "anybody" has no proven identity."""

_NAME_MAX: Final = 256


class Proven(NamedTuple):
    """The proven identity of a caller."""

    role: Role
    name: str
    """Id of the device or name of the relay; empty for "anybody"."""
    token: str = ""
    """Id of the token, if there is one."""


ANYBODY: Final = Proven("anybody", "")


def proven_as(role: Role, name: str, token: str = "") -> Proven:
    """Return a proven identity.

    Raises:
        IdentityError: The name is not possible.
    """
    if role == "device":
        problem = device_problem(name)
    else:
        is_name = name.isprintable() and 0 < len(name) <= _NAME_MAX
        problem = None if is_name else "is not a valid name"
    if "\n" in name or "\r" in name or not token.isprintable():
        problem = (
            problem or "it, or its jti, has characters that a file of revoked names cannot hold"
        )
    if problem is not None:
        raise IdentityError(f"the proof of a {role} named {name[:_NAME_MAX]!r}: {problem}")
    return Proven(role, name, token)


class DeviceAuthenticator(Protocol):
    """Finds the identity of callers. One event loop; other threads use only ``watched``."""

    @property
    def headers(self) -> frozenset[bytes]:
        """Request headers that ``prove`` reads, in lower case."""

    @property
    def watched(self) -> "Sequence[WatchedFile[Any]]":
        """Files with keys or secrets; the service reads them again after a change."""

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> Proven:
        """Return the caller's identity. Must not block, because it runs before each check.

        Args:
            headers: The request's values of ``headers``. A repeated header has its values with
                commas between them. Nothing here is trusted.
            peer: Address of the connection; empty if it has none.
            now_s: Epoch seconds.

        Raises:
            IdentityError: The caller has no proven identity; the answer is 401.
        """
