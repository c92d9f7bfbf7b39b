"""What comes to a table, and what becomes one write batch of it."""

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
"""Generation and sequence number, behind ``device_prefix``."""

_OFFSET_BITS: Final = 48


class Place(msgspec.Struct, frozen=True, array_like=True):
    """How far a table's source was read."""

    begun: int = 0
    """How often reading began anew, because the topic did."""
    next: int = 0
    """Kafka's offset of the next record, the log's last position, or whatever counts there."""
    offset: bytes = b""
    """The reader's own; empty where nothing was read, or the reader needs none."""

    @property
    def progress(self) -> int:
        """As one number: higher is further."""
        return (self.begun << _OFFSET_BITS) + self.next


class Stretch(NamedTuple):
    """Records of one sender that follow each other."""

    incarnation: str
    partition: int
    """The sender's."""
    epoch: int
    records: Sequence[FeatureRecord] = ()
    numbers: Sequence[int] = ()
    """Offsets of the records, for sinks, or of the calls; none in a frame."""
    reports: Sequence[ReportFrame] = ()
    calls: Sequence[CloudCall] = ()
    frame: int = 0
    """Number of the sender's frame, where frames come."""

    @property
    def refusals(self) -> int:
        """How many records are refused with it; a frame is one."""
        return 1 if self.frame else len(self.records) + len(self.reports) + len(self.calls)


class Merging:
    """What becomes one write batch."""

    def __init__(self, counts: MergeCounts, place: Place, batch: KeyBatch) -> None:
        """Begin with nothing, on the way to a place; the counts are changed, and end with it."""
        self.batch = batch
        self.counts = counts
        self.place = place
        self.base = place.begun << _OFFSET_BITS
        """What is added to offsets, so that a topic that begins anew goes on."""
        self.touched: dict[str, DeviceSeen] = {}
        self.rows: dict[str, dict[bytes, tuple[str, bytes]]] = {}
        """New rows by device and key, with the task."""
        self.reports: list[ReportFrame] = []
        self.merged: list[MergedFeature] = []
        """For sinks."""
        self.full: set[str] = set()
        """Devices with too many rows."""
        self.problems: list[str] = []
        self.last_call = 0

    def refuse(self, count: int, why: str) -> None:
        """Count records that are not merged."""
        self.counts.frames_refused += count
        self.problems.append(why)


def device_prefix(device_id: str) -> bytes:
    """Return what the keys of a device's features begin with."""
    return b"\x10" + device_id.encode() + b"\x00"
