"""Settings of operators over HTTP: ``spec.operators`` of a release service's YAML."""

from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, model_validator

from walle_deploy.identity.settings import OPERATORS, IssuerSpec
from walle_deploy.model.addresses import checked_url
from walle_deploy.operators.operator import ROLES, Role
from walle_stream.spec.paths import PathField

_BROWSERS: Final = {"cache-control", "connection", "cookie", "host", "origin", "pragma", "referer"}
_BROWSERS_BEGIN: Final = ("accept", "content-", "proxy-", "sec-", "upgrade", "user-agent")
_Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]


def _safe_url(text: str) -> str:
    parts = urlsplit(checked_url(text))
    if parts.scheme != "https" and parts.hostname not in {"127.0.0.1", "::1", "localhost"}:
        raise ValueError(
            "expected https://: anybody who alters the keys on their way becomes an operator"
        )
    return text


class OperatorsSpec(IssuerSpec):
    """Operators prove their identity with tokens of one issuer, such as OpenID Connect."""

    keys: PathField | None = Field(
        default=None,
        description="Public keys of the issuer (JWKS, RFC 7517): Ed25519, P-256 and RSA.",
    )
    keys_url: Annotated[_Text, AfterValidator(_safe_url)] | None = Field(
        default=None, description="Address of the issuer's keys, in place of keys."
    )
    audience: _Text = Field(default=OPERATORS, description="Claim aud of operators' tokens.")
    name_claim: _Text = Field(
        default="sub", description="Claim with an operator's name for the audit log."
    )
    role_claim: _Text = Field(
        default="role", description="Claim with the roles: a text, or a list of texts."
    )
    roles: dict[_Text, Role] = Field(
        default={role: role for role in ROLES},
        max_length=10_000,
        description="Role for each value of that claim; the highest counts.",
    )
    second_person: StrictBool = Field(
        default=False, description="A release begins only after another person approved it."
    )

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.header in _BROWSERS or self.header.startswith(_BROWSERS_BEGIN):
            raise ValueError(f"header: browsers write {self.header} themselves: choose another")
        if (self.keys is None) == (self.keys_url is None):
            raise ValueError("expected one of keys and keysUrl")
        return self
