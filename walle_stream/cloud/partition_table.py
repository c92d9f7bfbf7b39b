r"""The feature table of records in one order, with the state of their senders, in one RocksDB.

The order is a partition of an uplink topic, or the log of local devices (``own_table``). A table
reads the records one after another from its own place. Its contents at a place are therefore the
same for every writer: no owner of the partition has to be announced, and no record is judged twice.

Keys, integers big-endian::

    \x00 counts | format | place       single rows; Place, MessagePack
    \x01 INCARNATION u32 partition     state of a sender, see ``tunnel.receiver``
    \x02 DEVICE                        DeviceHead, MessagePack; DeviceSeen if all features stay
    \x03 u64 position                  downlink message, without a topic for them
    \x04 u64 number                    OpenCall, MessagePack; until its reply was sent
    \x05 u64 number                    frame of reports that the service does not have yet
    \x06 u64 number, \x07 NAME         rows of sinks, see ``sink_log``
    \x10 DEVICE \x00 u32 generation u64 seq   KeptFeature, MessagePack

Features, senders' states and the place commit in ONE write batch, which makes the effect
exactly-once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Final, NamedTuple, cast

import msgspec

from walle_stream.cloud.heads import INCARNATIONS_MAX, DeviceHead, KeptFeature
from walle_stream.cloud.merging import FEATURE_KEY, Merging, Place, Stretch, device_prefix
from walle_stream.cloud.reports import PREFIX, WAITING_MAX_BYTES, HeldReports, Waiting
from walle_stream.cloud.sink_log import SinkLog, as_merged
from walle_stream.errors import FormatVersionError
from walle_stream.faults import crash_point
from walle_stream.store.files import make_folder
from walle_stream.store.keyspace import KeySpace
from walle_stream.store.rocks import open_rocks
from walle_stream.store.transaction import prefix_end
from walle_stream.tunnel.receiver import SENDER_PREFIX, DeviceSeen, MergeCounts, Senders, Verdict
from walle_stream.wire.calls import OpenCall
from walle_stream.wire.frame import FeatureRecord

FORMAT_VERSION: Final = b"6"
PLACE_KEY: Final = b"\x00place"
COUNTS_KEY: Final = b"\x00counts"

_CALL_PREFIX: Final = b"\x04"
_SLACK_MIN: Final = 8
_CACHED_DEVICES: Final = 2_000  # a worker may have a hundred tables
_CACHED_WHERE_ONE: Final = 50_000

_encode = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(KeptFeature).decode
_decode_head = msgspec.msgpack.Decoder(DeviceHead).decode
_decode_call = msgspec.msgpack.Decoder(OpenCall).decode


class Kept(NamedTuple):
    """Contents of a table for a device."""

    head: DeviceHead
    rows: Sequence[tuple[int, int, KeptFeature]]
    """Generation, number and feature; the newest first."""


class PartitionTable:
    """A feature table. One thread writes; any thread may look up.

    After it is closed, reads and writes of its database raise ``StoreError``.
    """

    def __init__(
        self,
        path: Path,
        keep: int | None,
        *,
        keeps_reports: bool = False,
        keeps_calls: bool = False,
        within: KeySpace | None = None,
    ) -> None:
        """Open the table, or make it if it is missing; blocks.

        The ``keep`` (≥ 1) latest features of a device and task stay; None: all stay. Reports and
        calls that the table does not keep are only counted. ``within`` is a part of another
        database for its rows; without it the path has a database of its own.

        Raises:
            FormatVersionError: It has another layout version.
            StoreError: It cannot be opened.
        """
        self.path = path
        self.sink_log: SinkLog | None = None
        self.lane = ""
        """Prefix that identifies the numbers of the features in ``sink_log``."""
        self._keep = keep or 0
        # some rows beyond ``keep`` may stay, so that the oldest ones are rarely looked for
        self._most = 0 if keep is None else keep + max(keep // 2, _SLACK_MIN)
        head_type = DeviceSeen if keep is None else DeviceHead
        self._decode_seen = msgspec.msgpack.Decoder(head_type).decode
        self._no_head = _encode(head_type())
        self._cached_devices = _CACHED_WHERE_ONE if keep is None else _CACHED_DEVICES
        self._lock = RLock()
        self._is_within = within is not None
        if within is None:
            make_folder(path)
            within = KeySpace(open_rocks(path, packs_flushes=True), path)
        self._space = within
        self._seen: dict[str, DeviceSeen] = {}
        self._check_format()
        self.place = msgspec.msgpack.decode(
            self._space.get(PLACE_KEY) or _encode(Place()), type=Place
        )
        self.stats = counts_in(within)
        self._senders = Senders(self._space.scan(SENDER_PREFIX))
        self._reports = (
            HeldReports(self._space.scan(PREFIX), WAITING_MAX_BYTES) if keeps_reports else None
        )
        self._keeps_calls = keeps_calls
        # waiting calls are looked for up to this number
        self._last_call = self.place.progress

    def serve_sinks(self, names: Sequence[str], lane: str) -> None:
        """Keep features merged from now on until all sinks have them; blocks, before any merge.

        ``lane`` distinguishes this table's numbers from those of other tables.
        """
        self.lane = lane
        if names:
            self.sink_log = SinkLog(self._space, names)

    def take(
        self, stretches: Iterable[Stretch], offset: bytes, next_offset: int, refused: int = 0
    ) -> list[str]:
        """Merge the next stretches, in the partition's order, in one write batch; blocks.

        Both offsets are the reader's after the stretches. ``refused`` counts records in between
        that were already refused. Returns the reasons of refusals here, a line each.

        Raises:
            StoreError: None of the records was written: open the table again.
        """
        begun = self.place.begun + (next_offset < self.place.next)
        counts = msgspec.structs.replace(self.stats)
        merging = Merging(counts, Place(begun, next_offset, offset), self._space.batch())
        counts.frames_refused += refused
        for each in stretches:
            self._merge_stretch(merging, each)
        for device_id in merging.full:
            self._trim(merging, device_id)
        with self._lock:
            self._write(merging)
        return merging.problems

    def look_up(self, device_id: str) -> Kept | None:
        """Return the kept rows of a device; any thread, blocks."""
        with self._lock:
            stored = self._space.get(b"\x02" + device_id.encode())
            rows = self._rows(device_id) if stored else []
        return Kept(_decode_head(stored), rows[::-1]) if stored else None

    def checkpoint(self, path: Path) -> None:
        """Make a copy of the table's own database; see ``PartitionStore.checkpoint``."""
        self._space.checkpoint(path)

    def first_reports(self, max_bytes: int) -> Sequence[Waiting]:
        """Return the oldest waiting frames of reports; any thread."""
        with self._lock:
            return () if self._reports is None else self._reports.first(max_bytes)

    def forget_reports(self, part: Sequence[Waiting]) -> None:
        """Delete frames that no longer wait; any thread, blocks."""
        with self._lock:
            if self._reports is not None:
                batch = self._space.batch()
                self._reports.forget(part, batch)
                self._space.write(batch)

    @property
    def report_counts(self) -> tuple[int, int]:
        """Numbers of waiting frames of reports, and of those dropped for lack of room."""
        held = self._reports
        return (0, 0) if held is None else (len(held.waiting), held.dropped)

    @property
    def last_call(self) -> int:
        """Number of the last call that arrived; any thread."""
        return self._last_call

    def open_calls(self, after: int, limit: int) -> list[tuple[int, OpenCall]]:
        """Return open calls; any thread, blocks."""
        start, end = _CALL_PREFIX + (after + 1).to_bytes(8), prefix_end(_CALL_PREFIX)
        with self._lock:
            return [
                (int.from_bytes(key[1:]), _decode_call(row))
                for key, row in islice(self._space.scan(start, end), limit)
            ]

    def close_call(self, number: int) -> None:
        """Delete a call whose reply was sent; any thread, blocks."""
        batch = self._space.batch()
        batch.delete(_CALL_PREFIX + number.to_bytes(8))
        with self._lock:
            self._space.write(batch)

    def close(self) -> None:
        """Release the database; look-ups fail afterwards. May be called twice.

        Raises:
            StoreError: The database cannot be closed cleanly after a failed write.
        """
        using = nullcontext() if self.sink_log is None else self.sink_log.using
        with self._lock, using:
            if not self._is_within:
                self._space.close()

    # A write batch

    def _merge_stretch(self, merging: Merging, stretch: Stretch) -> None:
        counts, frame = merging.counts, stretch.frame
        sender = stretch.incarnation, stretch.partition
        known = self._senders.seen(*sender)
        counts.frames += frame > 0
        if not self._senders.admits(*sender, stretch.epoch, frame):
            merging.refuse(
                stretch.refusals,
                f"epoch {stretch.epoch} of partition {stretch.partition} is over, {known.epoch} "
                "was seen: the sender lost the partition to another host",
            )
            return
        if self._senders.seen(*sender) != known:
            merging.batch.put(*self._senders.row(*sender))
        merging.reports += stretch.reports
        if not frame:
            counts.frames += len(stretch.reports)
        if not frame or frame > known.frame:
            self._open_calls(merging, stretch)
        else:
            counts.duplicates_dropped += len(stretch.calls)
        self._merge_records(merging, stretch)

    def _open_calls(self, merging: Merging, stretch: Stretch) -> None:
        for index, call in enumerate(stretch.calls):
            merging.counts.calls += 1
            if self._keeps_calls:
                offsets = stretch.numbers
                number = merging.base + offsets[index] + 1 if offsets else merging.counts.calls
                merging.last_call = number
                row = OpenCall(stretch.incarnation, call, stretch.partition)
                merging.batch.put(_CALL_PREFIX + number.to_bytes(8), _encode(row))

    def _merge_records(self, merging: Merging, stretch: Stretch) -> None:
        incarnation, counts, log = stretch.incarnation, merging.counts, self.sink_log
        pack, device_id = FEATURE_KEY.pack, None
        for index, record in enumerate(stretch.records):
            number = record.sequence_number
            if record.device_id != device_id:
                device_id = record.device_id
                prefix, head = device_prefix(device_id), self._device(device_id)
                known = head.incarnations
                is_one_more = len(known) >= INCARNATIONS_MAX and incarnation not in known
                counts.devices += not known
                merging.touched[device_id] = head
                rows = merging.rows.setdefault(device_id, {})
            if is_one_more:
                # no incarnation may be forgotten: its records would count again when they are
                # repeated
                merging.refuse(
                    1,
                    f"device {device_id!r}: incarnation {incarnation!r} exceeds the limit of "
                    f"{INCARNATIONS_MAX} per device: its data directory was made anew too often, "
                    "or another sender uses its id",
                )
                continue
            verdict, generation = head.judge(incarnation, number)
            if verdict is Verdict.SEEN:
                counts.duplicates_dropped += 1
                continue
            counts.features += 1
            is_gap = verdict is Verdict.GAP
            counts.gaps += is_gap
            if head.take(generation, record, is_gap=is_gap) > self._most:
                merging.full.add(device_id)
            feature = KeptFeature(
                record.task,
                record.task_version,
                record.feature,
                record.encoding,
                record.event_time_ms,
            )
            rows[prefix + pack(generation, number)] = record.task, _encode(feature)
            if log is not None:
                offsets = stretch.numbers
                count = log.end + len(merging.merged)
                number = merging.base + offsets[index] if offsets else count
                merging.merged.append(as_merged(number, incarnation, record))

    def _trim(self, merging: Merging, device_id: str) -> None:
        fresh, prefix = merging.rows[device_id], device_prefix(device_id)
        keys: dict[str, list[bytes]] = {}
        for generation, number, row in self._rows(device_id):
            key = prefix + FEATURE_KEY.pack(generation, number)
            keys.setdefault(row.task, []).append(key)
        for key, (task, _) in fresh.items():
            keys.setdefault(task, []).append(key)
        head = cast("DeviceHead", self._device(device_id))  # as not all features stay
        for task, of_task in keys.items():
            of_task.sort()
            for key in of_task[: -self._keep]:
                if key in fresh:
                    del fresh[key]
                else:
                    merging.batch.delete(key)
            head.kept[task] = min(len(of_task), self._keep)

    def _write(self, merging: Merging) -> None:
        # the caller holds the lock
        batch, counts, log = merging.batch, merging.counts, self.sink_log
        for rows in merging.rows.values():
            for key, (_, row) in rows.items():
                batch.put(key, row)
        for device_id, head in merging.touched.items():
            batch.put(b"\x02" + device_id.encode(), _encode(head))
        batch.put(PLACE_KEY, _encode(merging.place))
        batch.put(COUNTS_KEY, _encode(counts))
        if log is not None and merging.merged:
            log.add(batch, merging.merged)
        self._hold_reports(merging)
        crash_point("cloud.before")
        self._space.write(batch)
        if log is not None and merging.merged:
            log.end = merging.merged[-1].number + 1
        crash_point("cloud.after")
        self.place, self.stats = merging.place, counts
        self._last_call = merging.last_call or self._last_call
        if len(self._seen) > self._cached_devices:
            self._seen.clear()

    def _hold_reports(self, merging: Merging) -> None:
        if self._reports is not None:
            self._reports.add(merging.reports, merging.batch)

    # Rows

    def _check_format(self) -> None:
        version = self._space.get(b"\x00format")
        if version is None:
            batch = self._space.batch()
            batch.put(b"\x00format", FORMAT_VERSION)
            self._space.write(batch)
        elif version != FORMAT_VERSION:
            raise FormatVersionError(
                f"{self.path} has format {version!r}, this version reads {FORMAT_VERSION!r}: use "
                "the version of walle_stream that wrote it, or a new --data-dir"
            )

    def _rows(self, device_id: str) -> list[tuple[int, int, KeptFeature]]:
        prefix = device_prefix(device_id)
        return [
            (*FEATURE_KEY.unpack_from(key, len(prefix)), _decode_row(row))
            for key, row in self._space.scan(prefix)
        ]

    def _device(self, device_id: str) -> DeviceSeen:
        head = self._seen.get(device_id)
        if head is None:
            stored = self._space.get(b"\x02" + device_id.encode())
            head = self._seen[device_id] = self._decode_seen(stored or self._no_head)
        return head


def features_in(space: KeySpace, device_id: str | None = None) -> Iterator[FeatureRecord]:
    """Iterate over a table's features by device and sequence number; None: all devices.

    Features of a later incarnation come after those of an earlier one.
    """
    for key, row in space.scan(b"\x10" if device_id is None else device_prefix(device_id)):
        end = len(key) - FEATURE_KEY.size - 1
        _, number = FEATURE_KEY.unpack_from(key, end + 1)
        kept = _decode_row(row)
        of_task = kept.task, kept.task_version, number
        content = kept.feature, kept.encoding, kept.event_time_ms
        yield FeatureRecord(key[1:end].decode(), *of_task, *content)


def counts_in(space: KeySpace) -> MergeCounts:
    """Return the merge counts of a table; blocks."""
    return msgspec.msgpack.decode(space.get(COUNTS_KEY) or _encode(MergeCounts()), type=MergeCounts)


def place_of(path: Path) -> Place:
    """Return the position of a closed table; blocks.

    Raises:
        StoreError: The table cannot be read.
    """
    table = PartitionTable(path, 1)
    table.close()
    return table.place
