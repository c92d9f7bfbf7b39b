"""``kind: ReleaseService``: the settings of a release service."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StrictInt, StringConstraints, model_validator

from walle_deploy.identity.budgets import BudgetsSpec
from walle_deploy.identity.settings import AuthenticationSpec, Network, OpenSpec, ProxySpec
from walle_deploy.model.addresses import checked_url
from walle_deploy.operators.settings import OperatorsSpec
from walle_deploy.policy.attributes import AttributeSource
from walle_stream.spec.models import Metadata
from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

_Url = Annotated[
    str,
    StringConstraints(strict=True, pattern=r"^(https?://\S+)?$", max_length=2_048),
    AfterValidator(lambda text: text and checked_url(text)),
]
_Waiting = Annotated[StrictInt, Field(ge=1, le=100_000)]
_Header = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9-]*$", max_length=64)]


class LimitsSpec(Strict):
    """Limits for one client and for all clients."""

    header_bytes: SizeBytes = Field(
        default=20_480, ge=1_024, le=2**20, description="Most bytes of a request's headers."
    )
    body_bytes: SizeBytes = Field(
        default=65_536,
        ge=0,
        le=2**24,
        description="Most bytes of a request's body; for reports 32 MiB, and 64 MiB at once.",
    )
    request_ms: DurationMs = Field(
        default=10_000,
        alias="request",
        ge=100,
        le=600_000,
        description="Longest time for sending the headers.",
    )
    body_ms: DurationMs = Field(
        default=10_000,
        alias="body",
        ge=100,
        le=600_000,
        description="Longest time for sending the body.",
    )
    keep_alive_ms: DurationMs = Field(
        default=75_000,
        alias="keepAlive",
        ge=1_000,
        description="Time for which an idle connection is kept.",
    )
    pending: _Waiting = Field(
        default=512, description="Requests that wait in a worker; further ones get 503 at once."
    )
    bodies: _Waiting = Field(
        default=256,
        description="Requests that wait for the rest of their body; further ones get 503.",
    )
    connections: StrictInt = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="Connections of a worker; further ones are closed.",
    )


class KnownDevicesSpec(Strict):
    """Limits of a worker's memory of devices."""

    max: StrictInt = Field(
        default=1_000_000, ge=1, le=100_000_000, description="Devices that a worker remembers."
    )
    flush_ms: DurationMs = Field(default=5_000, alias="flush", description="Has no effect.")


class ServiceSpec(Strict):
    """Settings of a release service."""

    cdn: _Url = Field(default="", description="Base address of shared files.")
    cen: _Url = Field(default="", description="Base address of exclusive files.")
    metadata: _Url = Field(default="", description="Address of the signed metadata.")
    attributes: AttributeSource | None = Field(
        default=None, description="Source of users' attributes for policies."
    )
    user_header: _Header = Field(
        default="",
        description="Header in which a gateway names the signed-in user, and which no client can "
        "set; without it a user's own files are not offered.",
    )
    poll_ms: DurationMs = Field(
        default=500,
        alias="poll",
        ge=10,
        le=60_000,
        description="Time between looks at the releases.",
    )
    retry_after_ms: DurationMs = Field(
        default=2_000,
        alias="retryAfter",
        ge=1_000,
        description="Time that a refused device waits.",
    )
    lease_ms: DurationMs = Field(
        default=10_000,
        alias="lease",
        ge=500,
        le=600_000,
        description="Time after which another process takes over if the one that drives releases "
        "has crashed.",
    )
    authentication: AuthenticationSpec = Field(
        default_factory=OpenSpec,
        discriminator="mode",
        description="How devices and relays prove their identity.",
    )
    operators: OperatorsSpec | None = Field(
        default=None, description="People who may change releases over HTTP; none if left out."
    )
    proxies: tuple[Network, ...] = Field(
        default=(),
        max_length=1_000,
        description="Addresses of proxies whose x-forwarded-for is trusted.",
    )
    budgets: BudgetsSpec = Field(
        default_factory=BudgetsSpec, description="Budgets of one device and one address."
    )
    limits: LimitsSpec = Field(default_factory=LimitsSpec, description="Limits of a worker.")
    known_devices: KnownDevicesSpec = Field(
        default_factory=KnownDevicesSpec, description="Memory of devices."
    )

    @model_validator(mode="after")
    def _names_proxies(self) -> Self:
        authentication = self.authentication
        if (
            isinstance(authentication, ProxySpec)
            and authentication.secret is None
            and not self.proxies
        ):
            raise ValueError(
                "authentication: any client could pose as the proxy: name its addresses "
                "(proxies), or share a secret with it (authentication.secret)"
            )
        return self


class ServiceDefinition(Strict):
    """A release service."""

    api_version: Literal["walle/v1"] = Field(description="Version of the format.")
    kind: Literal["ReleaseService"] = Field(description="Kind of the document.")
    metadata: Metadata = Field(description="Name of the service.")
    spec: ServiceSpec = Field(default_factory=ServiceSpec, description="Settings of the service.")
