"""Records on their way to a table, and the write batch that merges them."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from walle_stream.ports import MergedFeature, ReportFrame
from walle_stream.store.keyspace import KeyBatch
from walle_stream.tunnel.receiver import DeviceSeen, MergeCounts
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.frame import FeatureRecord

FEATURE_KEY: Final = Struct(">IQ")
"""Generation and sequence number, after ``device_prefix``."""

_OFFSET_BITS: Final = 48


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Position of a table in its source."""

    begun: int = 0
    """Number of times that reading began anew, as the topic did."""
    next: int = 0
    """Next position: Kafka's offset of the next record, or the log's last position."""
    offset: bytes = b""
    """The reader's own offset; empty before the first read, or if the reader needs none."""

    @property
    def progress(self) -> int:
        """The position as one number, which only grows."""
        return (self.begun << _OFFSET_BITS) + self.next


class Stretch(NamedTuple):
    """Consecutive records of one sender."""

    incarnation: str
    partition: int
    """The sender's partition."""
    epoch: int
    records: Sequence[FeatureRecord] = ()
    numbers: Sequence[int] = ()
    """Offsets of the records (for sinks) or of the calls; empty in a frame."""
    reports: Sequence[ReportFrame] = ()
    calls: Sequence[CloudCall] = ()
    frame: int = 0
    """Number of the sender's frame; 0 without frames."""

    @property
    def refusals(self) -> int:
        """Number of records that a refusal counts; a frame counts as one."""
        return 1 if self.frame else len(self.records) + len(self.reports) + len(self.calls)


class Merging:
    """Contents of one write batch."""

    def __init__(self, counts: MergeCounts, place: Place, batch: KeyBatch) -> None:
        """Begin an empty batch that ends at a place; it changes the counts and stores them."""
        self.batch = batch
        self.counts = counts
        self.place = place
        self.base = place.begun << _OFFSET_BITS
        """Added to offsets, so that they continue to grow when a topic begins anew."""
        self.touched: dict[str, DeviceSeen] = {}
        self.rows: dict[str, dict[bytes, tuple[str, bytes]]] = {}
        """New rows by device and key, with the task."""
        self.reports: list[ReportFrame] = []
        self.merged: list[MergedFeature] = []
        """Merged features for sinks."""
        self.full: set[str] = set()
        """Devices with too many rows."""
        self.problems: list[str] = []
        self.last_call = 0

    def refuse(self, count: int, why: str) -> None:
        """Count records that are refused."""
        self.counts.frames_refused += count
        self.problems.append(why)


def device_prefix(device_id: str) -> bytes:
    """Return the prefix of the keys of a device's features."""
    return b"\x10" + device_id.encode() + b"\x00"
