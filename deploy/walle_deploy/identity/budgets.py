"""Rate limits of devices and addresses: parts of a YAML, and token buckets."""

from collections import OrderedDict
from typing import Annotated

from pydantic import Field, StrictFloat, StrictInt

from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

_Rate = Annotated[StrictFloat | StrictInt, Field(ge=0, le=1e9)]


class DeviceBudget(Strict):
    """Limits per second for one proven device."""

    checks: _Rate = Field(default=10, description="Checks.")
    frames: _Rate = Field(default=5, description="Frames of reports.")
    bytes: SizeBytes = Field(default=2**20, description="Bytes of reports.")


class AddressBudget(Strict):
    """Limits per second for one address; a NAT, relay or proxy stands for many devices."""

    checks: _Rate = Field(default=20_000, description="Checks.")
    frames: _Rate = Field(default=20_000, description="Frames of reports.")
    bytes: SizeBytes = Field(default=2**26, description="Bytes of reports.")


class BudgetsSpec(Strict):
    """Limits for one worker; 0 is no limit. Requests beyond a limit are answered with 429."""

    device: DeviceBudget = Field(default_factory=DeviceBudget, description="A proven device.")
    address: AddressBudget = Field(
        default_factory=AddressBudget, description="An address; for IPv6 its network of 64 bits."
    )
    burst_ms: DurationMs = Field(
        default=10_000,
        alias="burst",
        ge=1_000,
        le=3_600_000,
        description="Largest burst, as time at the full rate.",
    )
    remembered: StrictInt = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Most remembered devices, and addresses, by last use.",
    )


class Budget:
    """Token buckets of one kind, by name, in memory for the last users. One thread.

    A bucket is one number, the moment when it is full again (the generic cell rate algorithm,
    ITU-T I.371). Some amounts are known only afterwards, such as the frames of a batch. So a bucket
    may fall below empty once, and its user waits until it is filled again.
    """

    def __init__(self, per_s: float, burst_s: float, remembered: int) -> None:
        """Start with full buckets.

        Args:
            per_s: Inflow of each bucket per second; 0 is no limit.
            burst_s: Seconds in which an empty bucket fills.
            remembered: Largest number of buckets. The one unused for longest is dropped; mostly
                it is full again.
        """
        self._cost_s = 1 / per_s if per_s else 0.0
        self._burst_s = burst_s
        self._remembered = remembered
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of buckets in memory."""
        return len(self._full_at)

    def try_spend(self, name: str, amount: float, now_s: float) -> float:
        """Take an amount ≥ 0 from a bucket unless it is empty; ``now_s`` never decreases.

        Returns:
            0 if the amount was taken, else the seconds until the bucket is no longer empty.
        """
        wait_s = self._full_at.get(name, 0.0) - self._burst_s - now_s
        if wait_s > 0:
            return wait_s
        self.spend(name, amount, now_s)
        return 0.0

    def spend(self, name: str, amount: float, now_s: float) -> None:
        """Take an amount from a bucket even if it is empty."""
        if not self._cost_s:
            return
        full = self._full_at
        full[name] = max(full.get(name, 0.0), now_s) + amount * self._cost_s
        full.move_to_end(name)
        if len(full) > self._remembered:
            full.popitem(last=False)
