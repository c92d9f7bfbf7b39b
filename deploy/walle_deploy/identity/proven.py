"""Who has proven to be whom, and the seam of whoever wants to know that."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from walle_deploy.model.owners import device_problem
from walle_stream.errors import IdentityError

if TYPE_CHECKING:
    from walle_deploy.policy.files import WatchedFile


type Role = Literal["device", "relay", "anybody"]
"""A relay brings the reports of other devices; anybody was not asked."""

_NAME_MAX: Final = 256


class Proven(NamedTuple):
    """Who asks, as far as it was proven."""

    role: Role
    name: str
    """Id of the device, or name of the relay; empty for anybody."""
    token: str = ""
    """Id of the token that says so; empty where it has none."""


ANYBODY: Final = Proven("anybody", "")


def proven_as(role: Role, name: str, token: str = "") -> Proven:
    """Return who asks.

    Raises:
        IdentityError: Nobody can have that name.
    """
    if role == "device":
        problem = device_problem(name)
    else:
        is_name = name.isprintable() and 0 < len(name) <= _NAME_MAX
        problem = None if is_name else "is no name"
    if "\n" in name or "\r" in name or not token.isprintable():
        problem = problem or "no line of a file can name it, or its jti, to revoke it"
    if problem is not None:
        raise IdentityError(f"the proof of a {role} named {name[:_NAME_MAX]!r}: {problem}")
    return Proven(role, name, token)


class DeviceAuthenticator(Protocol):
    """Finds out who asks. One event loop; only ``watched`` is used by other threads."""

    @property
    def headers(self) -> frozenset[bytes]:
        """Those of a request that it looks at, in lower case."""

    @property
    def watched(self) -> "Sequence[WatchedFile[Any]]":
        """Files that it goes by; the service reads them again when they change."""

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> Proven:
        """Return who asks; must not block, as it is called before each check.

        Args:
            headers: What the request has of ``headers``; of one that stands there twice both
                values, with a comma between them. Nothing of it is trusted.
            peer: Address of who connected; empty where it has none.
            now_s: Epoch seconds.

        Raises:
            IdentityError: Nobody is proven; the answer is 401.
        """
