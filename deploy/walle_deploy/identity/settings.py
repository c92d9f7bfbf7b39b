"""Settings of authentication for devices and relays: parts of a YAML."""

from ipaddress import ip_network
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StrictInt, StringConstraints, model_validator

from walle_stream.spec.paths import PathField
from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict

DEVICES: Final = "walle-devices"
RELAYS: Final = "walle-relays"
OPERATORS: Final = "walle-operators"
"""Default audience of operators' tokens. Tokens of devices or for other services are refused."""

_Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
_Header = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)
]


def _network(text: str) -> str:
    ip_network(text)  # raises ValueError for other text
    return text


Network = Annotated[str, StringConstraints(strict=True, max_length=64), AfterValidator(_network)]
"""A network such as ``10.0.0.0/8``, or an address such as ``::1``."""


class OpenSpec(Strict):
    """No authentication, for development."""

    mode: Literal["open"] = Field(default="open", description="Nobody is asked.")


class IssuerSpec(Strict):
    """The issuer of tokens, and limits for accepted tokens."""

    issuer: _Text = Field(description="Claim iss of its tokens.")
    revoked: PathField | None = Field(
        default=None, description="Names, and ids of tokens (jti), one a line."
    )
    header: _Header = Field(
        default="authorization", description="Where the token is, if not in walle-token."
    )
    skew_ms: DurationMs = Field(
        default=60_000,
        alias="skew",
        le=600_000,
        description="How far the clocks of issuer and service may be apart.",
    )


class TokensSpec(IssuerSpec):
    """Signed tokens (JWT, RFC 7519) in a header of each request."""

    mode: Literal["tokens"] = Field(description="By signed tokens.")
    keys: PathField = Field(
        description="Public keys of the issuer (JWKS, RFC 7517): Ed25519, P-256 and RSA."
    )
    audience: _Text = Field(default=DEVICES, description="Claim aud of devices' tokens.")
    relay_audience: _Text = Field(default=RELAYS, description="Claim aud of relays' tokens.")
    cached: StrictInt = Field(
        default=100_000, ge=0, le=10_000_000, description="Tokens that are not verified again."
    )

    @model_validator(mode="after")
    def _tells_relays_apart(self) -> Self:
        if self.audience == self.relay_audience:
            raise ValueError(
                "relayAudience: is that of devices, too, so any device could report of all"
            )
        return self


class ProxySpec(Strict):
    """Client certificates, verified by a proxy in front, which passes on their names."""

    mode: Literal["proxy"] = Field(description="By certificates that a proxy verifies.")
    header: _Header = Field(description="Where the proxy writes whose certificate it is.")
    form: Literal["subject", "name"] = Field(
        default="subject",
        description="subject: a distinguished name (RFC 4514), of which the CN counts; name: a "
        "name alone, such as one of subjectAltName.",
    )
    prefix: str = Field(
        default="", max_length=256, description="Stands before a device's id in the name."
    )
    relays: tuple[_Text, ...] = Field(
        default=(), max_length=1_000, description="Names of relays, whole."
    )
    secret_header: _Header = Field(
        default="walle-proxy-secret", description="Where the proxy writes its secret."
    )
    secret: PathField | None = Field(
        default=None,
        description="File of the secret that the proxy shares, at least 16 characters, one a "
        "line; without one spec.proxies has to say who is a proxy.",
    )
    revoked: PathField | None = Field(
        default=None, description="Ids of devices and relays, one a line."
    )


type AuthenticationSpec = OpenSpec | TokensSpec | ProxySpec
