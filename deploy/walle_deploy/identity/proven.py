"""Who has proven to be whom."""

from typing import Final, Literal, NamedTuple

from walle_deploy.model.owners import device_problem
from walle_stream.errors import IdentityError

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
    if problem is not None:
        raise IdentityError(f"the proof of a {role} named {name[:_NAME_MAX]!r}: {problem}")
    return Proven(role, name, token)
