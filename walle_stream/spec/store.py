"""``spec.state``: durability and caches of the stores on the disk."""

from typing import Literal

from pydantic import Field, StrictBool

from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict


class StoreSpec(Strict):
    """Durability and caches of a store."""

    sync: StrictBool | Literal["interval"] = Field(
        default=False,
        description="Durability through a power cut. true: all acknowledged data survives, and "
        "each commit is flushed to the disk; interval: the same, flushed every syncInterval; "
        "false: only data that the operating system had written survives.",
    )
    sync_interval_ms: DurationMs = Field(
        default=100,
        alias="syncInterval",
        ge=1,
        le=1_000,
        description="Longest time between two flushes, with sync: interval.",
    )
    cache_size_bytes: SizeBytes = Field(
        default=64 * 2**20,
        alias="cacheSize",
        ge=2**20,
        le=2**40,
        description="Memory for cached blocks of all partitions together.",
    )
    journal_events: int = Field(
        default=20_000,
        alias="journalEvents",
        ge=0,
        le=10_000_000,
        description=(
            "Events of a partition in the journal, which a restart handles again, before the "
            "devices that they touched are written; 0 writes these devices at every commit."
        ),
    )

    @property
    def sync_ms(self) -> float | None:
        """Interval between flushes in milliseconds: None for no flushes, 0 for each commit."""
        if self.sync == "interval":
            return float(self.sync_interval_ms)
        return 0.0 if self.sync else None
