"""A person, or a program, that works on releases."""

from typing import Final, Literal

import msgspec

from walle_stream.errors import ForbiddenError

type Role = Literal["viewer", "author", "approver"]
"""A viewer looks. An author creates, pauses and rolls back, too; an approver does all of that,
and lets a release go on by hand."""

ROLES: Final[tuple[Role, ...]] = ("viewer", "author", "approver")
"""Each may do what those before it may."""


class Operator(msgspec.Struct, frozen=True):
    """Who works on releases."""

    name: str
    role: Role
    issuer: str = ""
    """Who says so; empty where nobody does."""
    subject: str = ""
    """Whom the issuer means, however he is called."""
    is_verified: bool = True
    """Whether that was proven; else it is what somebody typed."""

    @property
    def person(self) -> str:
        """What tells people apart: the same one never counts twice."""
        return f"{self.issuer} {self.subject}" if self.is_verified else self.name

    def need(self, role: Role) -> None:
        """Refuse who may not do what a role may.

        Raises:
            ForbiddenError: The role is another.
        """
        if ROLES.index(self.role) < ROLES.index(role):
            raise ForbiddenError(
                f"{self.name!r} has the role {self.role}: that needs the role {role} "
                "(docs/deploy/operators.md)"
            )
