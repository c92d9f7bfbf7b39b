"""A person or program that works on releases."""

from typing import Final, Literal

import msgspec

from walle_stream.errors import ForbiddenError

type Role = Literal["viewer", "author", "approver"]
"""A viewer reads. An author also creates, pauses and rolls back. An approver also approves and
advances releases by hand."""

ROLES: Final[tuple[Role, ...]] = ("viewer", "author", "approver")
"""Roles in order; each includes the rights of all before it."""


class Operator(msgspec.Struct, frozen=True):
    """An operator of releases."""

    name: str
    role: Role
    issuer: str = ""
    """Issuer of the token; empty without one."""
    subject: str = ""
    """The issuer's id of the operator, whatever the name is."""
    is_verified: bool = True
    """Whether a token proved the name; otherwise the name is typed text."""

    @property
    def person(self) -> str:
        """Key of the person: the same person never counts twice."""
        return f"{self.issuer} {self.subject}" if self.is_verified else self.name

    def need(self, role: Role) -> None:
        """Refuse an operator whose role has fewer rights than another role.

        Raises:
            ForbiddenError: The role does not suffice.
        """
        if ROLES.index(self.role) < ROLES.index(role):
            raise ForbiddenError(
                f"{self.name!r} has the role {self.role}: this needs the role {role} "
                "(docs/deploy/operators.md)"
            )
