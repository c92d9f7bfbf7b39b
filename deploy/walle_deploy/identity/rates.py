"""How often devices and addresses may ask: parts of a YAML."""

from typing import Annotated

from pydantic import Field, StrictFloat, StrictInt

from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

_Rate = Annotated[StrictFloat | StrictInt, Field(ge=0, le=1e9)]


class DeviceBudget(Strict):
    """What one proven device may send, a second."""

    checks: _Rate = Field(default=10, description="Checks.")
    frames: _Rate = Field(default=5, description="Frames of reports.")
    bytes: SizeBytes = Field(default=2**20, description="Bytes of reports.")


class AddressBudget(Strict):
    """What one address may send, a second: a NAT, a relay or a proxy has many devices behind it."""

    checks: _Rate = Field(default=20_000, description="Checks.")
    frames: _Rate = Field(default=20_000, description="Frames of reports.")
    bytes: SizeBytes = Field(default=2**26, description="Bytes of reports.")


class BudgetsSpec(Strict):
    """What each may send to a worker; 0 is without a bound, more is answered with 429."""

    device: DeviceBudget = Field(default_factory=DeviceBudget, description="A proven device.")
    address: AddressBudget = Field(
        default_factory=AddressBudget, description="An address; of IPv6 the network of 64 bits."
    )
    burst_ms: DurationMs = Field(
        default=10_000, alias="burst", ge=1_000, le=3_600_000, description="What may come at once."
    )
    remembered: StrictInt = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Of devices, and of addresses, those that sent something last.",
    )
