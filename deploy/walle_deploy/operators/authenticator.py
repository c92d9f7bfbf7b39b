"""Authenticates operators by a token of the issuer, for this audience, with a role."""

from collections.abc import Mapping
from typing import Any

from walle_deploy.identity.issuer import IssuerKeys
from walle_deploy.identity.keys import read_keys
from walle_deploy.identity.proven import proven_as
from walle_deploy.identity.tokens import Tokens
from walle_deploy.operators.operator import ROLES, Operator
from walle_deploy.operators.settings import OperatorsSpec
from walle_deploy.policy.files import WatchedFile, read_revoked
from walle_stream.errors import ForbiddenError, IdentityError


class OperatorAuthenticator:
    """Accepts tokens of ``spec.operators``. Any thread."""

    def __init__(self, spec: OperatorsSpec) -> None:
        """Read keys and lists; blocks.

        Raises:
            SpecFileError: One of its files cannot be read.
        """
        self.spec = spec
        self._revoked = (
            None if spec.revoked is None else WatchedFile.opened(spec.revoked, read_revoked)
        )
        self._keys = (
            IssuerKeys(spec.keys_url or "")
            if spec.keys is None
            else WatchedFile.opened(spec.keys, read_keys)
        )
        self._tokens = Tokens(spec, self._keys, [spec.audience], self._operator)
        self.headers = self._tokens.headers
        """Request headers that ``prove`` reads, in lower case."""

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> Operator:
        """Return the operator, see ``DeviceAuthenticator``; blocks if keys must be read again.

        Raises:
            IdentityError: There is no proven identity; the answer is 401.
            ForbiddenError: The operator has no role here; the answer is 403.
        """
        self._keys.refresh()
        if self._revoked is not None:
            self._revoked.refresh()
        return self._tokens.prove(headers, peer, now_s)

    def _operator(self, claims: Mapping[str, Any]) -> Operator:
        spec = self.spec
        subject, name = claims["sub"], claims.get(spec.name_claim)
        # the audit log's name for the controller is reserved
        if not isinstance(name, str) or name == "controller":
            raise IdentityError(f"the token has no name of an operator in {spec.name_claim!r}")
        token_id = str(claims.get("jti", ""))
        for text in (subject, name):
            proven_as("anybody", text, token_id)
        revoked = (self._revoked and self._revoked.known) or frozenset()
        if not revoked.isdisjoint({subject, name, token_id}):
            raise IdentityError(f"operator {name!r}, or the token, is revoked")
        claimed = claims.get(spec.role_claim, [])
        claimed = claimed if isinstance(claimed, list) else [claimed]
        roles = {spec.roles.get(value) for value in claimed if isinstance(value, str)}
        role = next((role for role in reversed(ROLES) if role in roles), None)
        if role is None:
            raise ForbiddenError(
                f"operator {name!r} has no role: no value of the claim {spec.role_claim!r} is in "
                "spec.operators.roles"
            )
        return Operator(name, role, spec.issuer, subject)
