r"""The feature table of one partition of an uplink topic, with the topic's offset.

A partition's records come in one order, and a table reads them one after another from its own
place. So a table at a place is the same whoever wrote it: nobody has to be told who owns the
partition now, and no record is judged twice.

Keys beside those of ``features``::

    \x00place                          Place, MessagePack
    \x02 DEVICE                        DeviceHead, MessagePack
    \x04 u64 number                    OpenCall; as the number of a record for sinks, and one
    \x05 u64 number                    frame of reports that the service does not have yet
    \x10 DEVICE \x00 u32 generation u64 seq   KeptFeature, MessagePack
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import Final, NamedTuple, cast, override

import msgspec
from rocksdict import Checkpoint, WriteBatch

from walle_stream.cloud.features import (
    CALL_PREFIX,
    FEATURE_KEY,
    FeatureStore,
    Merging,
    device_prefix,
)
from walle_stream.cloud.heads import INCARNATIONS_MAX, DeviceHead, KeptFeature
from walle_stream.cloud.reports import PREFIX, WAITING_MAX_BYTES, HeldReports, Waiting
from walle_stream.cloud.sink_log import as_merged
from walle_stream.ports import ReportFrame
from walle_stream.store.rocks import RocksErrorMap, scan_rocks
from walle_stream.store.transaction import prefix_end
from walle_stream.tunnel.receiver import MergeCounts, Verdict
from walle_stream.wire.calls import CloudCall, OpenCall
from walle_stream.wire.frame import FeatureRecord

PLACE_KEY: Final = b"\x00place"
_SLACK_MIN: Final = 8
_OFFSET_BITS: Final = 48

_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(DeviceHead).decode
_decode_row = msgspec.msgpack.Decoder(KeptFeature).decode


class Place(msgspec.Struct, frozen=True, array_like=True):
    """How far a partition was read."""

    begun: int = 0
    """How often reading began anew, because the topic did."""
    next: int = 0
    """Kafka's offset of the next record, or whatever counts there."""
    offset: bytes = b""
    """The reader's own; empty where nothing was read."""

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
    """Offsets of the records, for sinks, or of the calls."""
    reports: Sequence[ReportFrame] = ()
    calls: Sequence[CloudCall] = ()


class Kept(NamedTuple):
    """What a table has of a device."""

    head: DeviceHead
    rows: Sequence[tuple[int, int, KeptFeature]]
    """Generation, number and feature; the newest first."""


class _Taking(Merging):
    def __init__(self, counts: MergeCounts, base: int) -> None:
        super().__init__(counts)
        self.base = base  # what is added to offsets, so that a topic that begins anew goes on
        self.fresh: dict[str, dict[bytes, str]] = {}  # by device, rows of this batch: key to task
        self.gone: set[bytes] = set()
        self.full: set[str] = set()  # devices with too many rows
        self.problems: list[str] = []
        self.last_call = 0


class PartitionTable(FeatureStore):
    """One writing thread; any thread may look up.

    Once it is closed, whatever reads or writes its database raises ``StoreError``.
    """

    _cached_devices = 2_000  # a worker may have a hundred tables
    _packs_flushes = True

    def __init__(
        self, path: Path, keep: int, *, keeps_reports: bool = False, keeps_calls: bool = False
    ) -> None:
        """Open it, making it if it is not there; blocks.

        ``keep`` (≥ 1) latest features of a device and task stay. Where the table does not keep
        reports, or calls, they are only counted.

        Raises:
            StoreError: It cannot be opened.
        """
        super().__init__(path)
        self.path = path
        self._keep = keep
        # some rows beyond ``keep`` may stay, so that the table seldom looks for the oldest ones
        self._most = keep + max(keep // 2, _SLACK_MIN)
        self._lock = RLock()
        found = self._get(PLACE_KEY)
        self.place = msgspec.msgpack.decode(found, type=Place) if found else Place()
        rows = scan_rocks(self._database, path, PREFIX, prefix_end(PREFIX))
        self._reports = HeldReports(rows, WAITING_MAX_BYTES) if keeps_reports else None
        self._keeps_calls = keeps_calls
        # calls that wait are looked for up to here
        self._last_call = self.place.progress

    def take(
        self, stretches: Iterable[Stretch], offset: bytes, next_offset: int, refused: int = 0
    ) -> list[str]:
        """Merge what comes next, in the partition's order, in one write batch; blocks.

        Both offsets are the reader's behind the stretches. ``refused`` counts records between them
        that were refused before. Returns why records were refused here, a line each.

        Raises:
            StoreError: Nothing of them was written: open it again.
        """
        begun = self.place.begun + (next_offset < self.place.next)
        merging = _Taking(msgspec.structs.replace(self.stats), begun << _OFFSET_BITS)
        merging.counts.frames_refused += refused
        for each in stretches:
            self._merge_stretch(merging, each)
        place = Place(begun, next_offset, offset)
        merging.batch.put(PLACE_KEY, _encode(place))
        with self._lock:
            if self._reports is not None:
                self._reports.add(merging.reports, merging.batch)
            merging.reports = []
            self._write(merging)
            self.place = place
            self._last_call = merging.last_call or self._last_call
        return merging.problems

    def look_up(self, device_id: str) -> Kept | None:
        """Return what is kept of a device; any thread, blocks."""
        with self._lock:
            stored = self._get(b"\x02" + device_id.encode())
            rows = self._rows(device_id) if stored else []
        return Kept(_decode_head(stored), rows[::-1]) if stored else None

    def checkpoint(self, path: Path) -> None:
        """Make a copy of the table; see ``PartitionStore.checkpoint``."""
        with RocksErrorMap(self.path):
            Checkpoint(self._database).create_checkpoint(str(path))

    def first_reports(self, max_bytes: int) -> Sequence[Waiting]:
        """Return the oldest frames of reports that wait; any thread."""
        with self._lock:
            return () if self._reports is None else self._reports.first(max_bytes)

    def forget_reports(self, part: Sequence[Waiting]) -> None:
        """Delete frames that wait no more; any thread, blocks."""
        with self._lock, RocksErrorMap(self.path):
            if self._reports is not None:
                batch = WriteBatch(raw_mode=True)
                self._reports.forget(part, batch)
                self._database.write(batch)

    @property
    @override
    def last_call(self) -> int:
        """Number of the last call that arrived; any thread."""
        return self._last_call

    @override
    def open_calls(self, after: int, limit: int) -> list[tuple[int, OpenCall]]:
        """Return calls that wait for their reply; any thread, blocks."""
        with self._lock:
            return super().open_calls(after, limit)

    @override
    def close_call(self, number: int) -> None:
        """Forget a call whose reply was sent; any thread, blocks."""
        with self._lock:
            super().close_call(number)

    @property
    def report_counts(self) -> tuple[int, int]:
        """How many frames of reports wait, and how many had no room."""
        held = self._reports
        return (0, 0) if held is None else (len(held.waiting), held.dropped)

    @override
    def close(self) -> None:
        """Release the database; look-ups fail from now on."""
        with self._lock:
            super().close()

    def _merge_stretch(self, merging: _Taking, stretch: Stretch) -> None:
        sender, epoch = (stretch.incarnation, stretch.partition), stretch.epoch
        known = self._fence.epochs.get(sender, 0)
        if not self._fence.admits(*sender, epoch):
            merging.counts.frames_refused += (
                len(stretch.records) + len(stretch.reports) + len(stretch.calls)
            )
            merging.problems.append(
                f"epoch {epoch} of partition {stretch.partition} is over, {known} was seen: the "
                "sender lost the partition to another host"
            )
            return
        if epoch != known:
            merging.put_sender(*sender, epoch)
        self._open_calls(merging, stretch)
        merging.counts.frames += len(stretch.reports)
        merging.reports += stretch.reports
        log = self.sink_log
        for index, record in enumerate(stretch.records):
            if self._merge_record(merging, stretch.incarnation, record) and log is not None:
                number = merging.base + stretch.numbers[index]
                merging.merged.append(as_merged(number, stretch.incarnation, record))
        while merging.full:
            self._trim(merging, merging.full.pop())

    def _open_calls(self, merging: _Taking, stretch: Stretch) -> None:
        merging.counts.calls += len(stretch.calls)
        for index, call in enumerate(stretch.calls if self._keeps_calls else ()):
            number = merging.last_call = merging.base + stretch.numbers[index] + 1
            row = OpenCall(stretch.incarnation, call, stretch.partition)
            merging.batch.put(CALL_PREFIX + number.to_bytes(8), _encode(row))

    def _merge_record(self, merging: _Taking, incarnation: str, record: FeatureRecord) -> bool:
        # whether it was new
        device_id, counts = record.device_id, merging.counts
        head = self._device(device_id)
        known = head.incarnations
        if len(known) >= INCARNATIONS_MAX and incarnation not in known:
            # none may be forgotten: its records would count once more when they come again
            counts.frames_refused += 1
            merging.problems.append(
                f"device {device_id!r}: incarnation {incarnation!r} is one more than the "
                f"{INCARNATIONS_MAX} of a device: its data directory was made anew so often, or "
                "somebody writes in its name"
            )
            return False
        counts.devices += not known
        merging.touched[device_id] = head
        verdict, generation = head.judge(incarnation, record.sequence_number)
        if verdict is Verdict.SEEN:
            counts.duplicates_dropped += 1
            return False
        is_gap = verdict is Verdict.GAP
        counts.features += 1
        counts.gaps += is_gap
        key = device_prefix(device_id) + FEATURE_KEY.pack(generation, record.sequence_number)
        merging.rows[key] = _encode(
            KeptFeature(
                record.task,
                record.task_version,
                record.feature,
                record.encoding,
                record.event_time_ms,
            )
        )
        merging.fresh.setdefault(device_id, {})[key] = record.task
        if head.take(generation, record, is_gap=is_gap) > self._most:
            merging.full.add(device_id)
        return True

    def _trim(self, merging: _Taking, device_id: str) -> None:
        fresh = merging.fresh[device_id]
        prefix = device_prefix(device_id)
        keys: dict[str, list[bytes]] = {}
        for generation, number, row in self._rows(device_id):
            key = prefix + FEATURE_KEY.pack(generation, number)
            if key not in merging.gone:
                keys.setdefault(row.task, []).append(key)
        for key, task in fresh.items():
            keys.setdefault(task, []).append(key)
        head = self._device(device_id)
        for task, of_task in keys.items():
            of_task.sort()
            for key in of_task[: -self._keep]:
                if key in fresh:
                    del fresh[key], merging.rows[key]
                else:
                    merging.batch.delete(key)
                    merging.gone.add(key)
            head.kept[task] = min(len(of_task), self._keep)

    def _rows(self, device_id: str) -> list[tuple[int, int, KeptFeature]]:
        prefix = device_prefix(device_id)
        return [
            (*FEATURE_KEY.unpack_from(key, len(prefix)), _decode_row(row))
            for key, row in scan_rocks(self._database, self.path, prefix, prefix_end(prefix))
        ]

    @override
    def _device(self, device_id: str) -> DeviceHead:
        return cast("DeviceHead", super()._device(device_id))  # of ``_head``

    @override
    def _head(self, stored: bytes | None) -> DeviceHead:
        return _decode_head(stored) if stored else DeviceHead()
