"""The definition of a simulated shop: keys under ``spec.source``."""

from typing import Annotated

from pydantic import Field, StrictInt

from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict

Rate = Annotated[float, Field(ge=0.0, le=1.0, strict=True)]
"""Share of events, 0 to 1."""


class SimulatorModel(Strict):
    """A shop and its visitors."""

    connector: str = "simulator"
    seed: StrictInt = Field(default=2022, ge=0, description="Another seed gives other visitors.")
    devices: StrictInt = Field(
        default=1_000, ge=1, le=10_000_000, description="Visitors, one device each."
    )
    sessions: StrictInt = Field(
        default=3, ge=1, le=1_000_000, description="Number of visits of each visitor."
    )
    items: StrictInt = Field(default=20_000, ge=1, description="Items in the shop.")
    payload_bytes: StrictInt = Field(
        default=900,
        ge=0,
        le=1_000_000,
        description="Size of an event's payload, such as device status, which no task reads.",
    )
    missing_exits: Rate = Field(default=0.02, description="Pages without an exit.")
    late_events: Rate = Field(default=0.01, description="Events that arrive after later ones.")
    lateness_ms: DurationMs = Field(
        default=2_000, alias="lateness", description="Longest delay of a late event."
    )
    lost_order_events: Rate = Field(
        default=0.001, description="Events that arrive a minute late, too late for any order."
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        description="Events per second of all devices; by default as fast as they are read.",
    )
    duplicates: Rate = Field(default=0.01, description="Events that arrive twice.")
