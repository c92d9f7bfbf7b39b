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

    mode: Literal["open"] = Field(default="open", description="Without authentication.")


class IssuerSpec(Strict):
    """The issuer of tokens, and limits for accepted tokens."""

    issuer: _Text = Field(description="Claim iss of its tokens.")
    revoked: PathField | None = Field(
        default=None, description="File of revoked names and token ids (jti), one in each line."
    )
    header: _Header = Field(
        default="authorization", description="Header with the token, besides walle-token."
    )
    skew_ms: DurationMs = Field(
        default=60_000,
        alias="skew",
        le=600_000,
        description="Largest difference between the clocks of issuer and service.",
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
        default=100_000, ge=0, le=10_000_000, description="Most verified tokens in memory."
    )

    @model_validator(mode="after")
    def _tells_relays_apart(self) -> Self:
        if self.audience == self.relay_audience:
            raise ValueError(
                "relayAudience: equals the audience of devices, so any device could report for all"
            )
        return self


class ProxySpec(Strict):
    """Client certificates, verified by a proxy in front, which passes on their names."""

    mode: Literal["proxy"] = Field(description="By certificates that a proxy verifies.")
    header: _Header = Field(
        description="Header in which the proxy passes on the certificate's name."
    )
    form: Literal["subject", "name"] = Field(
        default="subject",
        description="subject: a distinguished name (RFC 4514), whose CN counts; name: a plain "
        "name, such as one of subjectAltName.",
    )
    prefix: str = Field(
        default="", max_length=256, description="Prefix of a device's id in the name."
    )
    relays: tuple[_Text, ...] = Field(
        default=(), max_length=1_000, description="Full names of relays."
    )
    secret_header: _Header = Field(
        default="walle-proxy-secret", description="Header in which the proxy passes its secret."
    )
    secret: PathField | None = Field(
        default=None,
        description="File of secrets shared with the proxy, at least 16 characters each, one in "
        "each line; without it, spec.proxies must name the proxies.",
    )
    revoked: PathField | None = Field(
        default=None, description="File of revoked ids of devices and relays, one in each line."
    )


type AuthenticationSpec = OpenSpec | TokensSpec | ProxySpec
