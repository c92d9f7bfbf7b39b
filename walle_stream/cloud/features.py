r"""The cloud side's feature table, with what it has seen, in one RocksDB.

Keys, integers big-endian::

    \x00 counts | format                   single rows
    \x00 lane u32 lane                     position of a lane, u64
    \x01 INCARNATION u32 partition         highest epoch, the last frame, its numbering: u64 each
    \x02 DEVICE                            DeviceSeen, MessagePack
    \x04 u64 number                        OpenCall, MessagePack; until its reply was sent
    \x06 u64 number, \x07 NAME             of sinks, see ``sink_log``
    \x10 DEVICE \x00 u32 generation u64 seq   (task, version, feature, encoding), MessagePack

Features, receiver state and the tunnel's position commit in ONE write batch:
that is what makes the effect exactly-once. The tunnel may forget a frame once
that batch is durable (``store.durability``). Calls are opened once per frame: a device
that sends one in a later frame, too, asks again, as its reply was lost in a power cut.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import msgspec
from rocksdict import DbClosedError, Rdict, WriteBatch

from walle_stream.cloud.heads import KeptFeature
from walle_stream.cloud.sink_log import SinkLog, as_merged
from walle_stream.errors import EnvelopeError, FormatVersionError
from walle_stream.faults import crash_point
from walle_stream.ports import MergedFeature, ReportFrame, ReportSink
from walle_stream.store.files import make_folder
from walle_stream.store.rocks import RocksErrorMap, durability_of, open_rocks, scan_rocks
from walle_stream.store.transaction import prefix_end
from walle_stream.tunnel.receiver import DeviceSeen, Fence, MergeCounts, Verdict
from walle_stream.wire.calls import CloudCall, OpenCall, decode_calls
from walle_stream.wire.envelope import UplinkEnvelope, decode_uplink
from walle_stream.wire.frame import FeatureRecord, decode_body
from walle_stream.wire.numbering import FIRST_NUMBERING, Numbering
from walle_stream.wire.reports import is_reports

FORMAT_VERSION: Final = b"4"

FEATURE_KEY: Final = Struct(">IQ")
"""Generation and sequence number, behind ``device_prefix``."""

CALL_PREFIX: Final = b"\x04"
COUNTS_KEY: Final = b"\x00counts"

_U64: Final = Struct(">Q")
_U32: Final = Struct(">I")
_SENDER: Final = Struct(">QQQQ")
_LANE: Final = b"\x00lane"

_encode = msgspec.msgpack.Encoder().encode
_decode_seen = msgspec.msgpack.Decoder(DeviceSeen).decode
_decode_feature = msgspec.msgpack.Decoder(KeptFeature).decode
_decode_call = msgspec.msgpack.Decoder(OpenCall).decode
_decode_counts = msgspec.msgpack.Decoder(MergeCounts).decode


class _Last(NamedTuple):
    # frame of a sender that was merged
    number: int
    numbering: Numbering


_NOTHING: Final = _Last(0, FIRST_NUMBERING)


class Merging:
    """What becomes one write batch."""

    def __init__(self, counts: MergeCounts) -> None:
        """Begin with nothing; the counts are changed, and end with it."""
        self.batch = WriteBatch(raw_mode=True)
        self.counts = counts
        self.touched: dict[str, DeviceSeen] = {}
        self.positions: dict[int, int] = {}
        self.reports: list[ReportFrame] = []
        self.rows: dict[bytes, bytes] = {}
        self.last_frames: dict[tuple[str, int], _Last] = {}
        self.merged: list[MergedFeature] = []
        """For sinks."""

    def put_sender(
        self, incarnation: str, partition: int, epoch: int, last: _Last = _NOTHING
    ) -> None:
        """Write what was seen of a sender: its epoch, and its last frame where it has such."""
        key = b"\x01" + incarnation.encode() + _U32.pack(partition)
        self.batch.put(key, _SENDER.pack(epoch, last.number, *last.numbering))


class FeatureStore:
    """The feature table of a tunnel. One writing thread; readers open it read-only."""

    _cached_devices = 50_000
    _packs_flushes = False

    def __init__(
        self, path: Path, *, read_only: bool = False, sync_ms: float | None = None
    ) -> None:
        """Open it, or make it; blocks. With ``read_only`` another process may write it.

        Raises:
            FormatVersionError: It has another layout version.
            StoreError: It cannot be opened.
        """
        if not read_only:
            make_folder(path)
        self._path = path
        self.report_sink: ReportSink | None = None
        """Gets frames of reports before they are merged; they are let go where None."""
        self.sink_log: SinkLog | None = None
        self.lane = ""
        """What numbers the features of ``sink_log``."""
        self._database: Rdict = open_rocks(
            path, read_only=read_only, packs_flushes=self._packs_flushes
        )
        self._durability = durability_of(self._database, path, sync_ms)
        self._merged: deque[tuple[int, dict[int, int]]] = deque()  # not durable yet
        self._seen: dict[str, DeviceSeen] = {}
        with RocksErrorMap(path):
            version = self._database.get(b"\x00format")
            if version is None and not read_only:
                self._database[b"\x00format"] = FORMAT_VERSION
            elif version not in {None, FORMAT_VERSION}:
                raise FormatVersionError(
                    f"{path} has format {version!r}, this version reads {FORMAT_VERSION!r}: use "
                    "the version of walle_stream that wrote it, or a new --data-dir"
                )
            self.positions: dict[int, int] = self._positions()
            """By lane, up to where the tunnel's frames are merged; none where nothing was."""
            self._durable = dict(self.positions)
            counts = self._database.get(COUNTS_KEY)
            self.stats = _decode_counts(counts) if counts else MergeCounts()
            epochs, self._last_frames = self._senders()
            self._fence = Fence(epochs)

    def serve_sinks(self, names: Sequence[str], lane: str) -> None:
        """Keep what is merged from now on until all sinks have it; blocks, before any merge.

        ``lane`` tells this table's numbers from those of others.
        """
        self.lane = lane
        if names:
            self.sink_log = SinkLog(self._database, self._path, names)

    def merge(self, frames: Sequence[tuple[int, int, bytes]]) -> MergeCounts:
        """Merge frames in one write batch and return the cumulative counts; blocks.

        Frames of the tunnel are (lane, position, envelope), ascending within a lane.

        Raises:
            StoreError: Nothing of them was written.
        """
        merging = Merging(msgspec.structs.replace(self.stats))
        for lane, position, data in frames:
            merging.positions[lane] = position
            self._merge_frame(merging, data)
        self._write(merging)
        return self.stats

    def _write(self, merging: Merging) -> None:
        batch, counts, positions = merging.batch, merging.counts, merging.positions
        for key, row in merging.rows.items():
            batch.put(key, row)
        for device_id, seen in merging.touched.items():
            batch.put(b"\x02" + device_id.encode(), _encode(seen))
        for lane, position in positions.items():
            batch.put(_LANE + _U32.pack(lane), _U64.pack(position))
        counts.told = min(counts.told, counts.losses)  # some may have been sent again
        batch.put(COUNTS_KEY, _encode(counts))
        log = self.sink_log
        if log is not None and merging.merged:
            log.add(batch, merging.merged)
        self._hand_over(merging.reports)
        crash_point("cloud.before")
        with RocksErrorMap(self._path):
            self._database.write(batch)
        self._merged.append((self._durability.commit(), positions))
        if log is not None and merging.merged:
            log.end = merging.merged[-1].number + 1
        crash_point("cloud.after")
        self.positions.update(positions)
        self._last_frames.update(merging.last_frames)
        self.stats = counts
        if len(self._seen) > self._cached_devices:
            self._seen.clear()

    def _merge_frame(self, merging: Merging, data: bytes) -> None:
        counts = merging.counts
        counts.frames += 1
        try:
            envelope = decode_uplink(data)
            calls, records = _decoded(envelope.body)
        except EnvelopeError:
            counts.frames_refused += 1
            return
        sender = (envelope.incarnation, envelope.partition)
        known = merging.last_frames.get(sender) or self._last_frames.get(sender, _NOTHING)
        last, number = known.number, envelope.number
        # frames of a numbering that this side, or the copy that it is of, was not asked about:
        # their partition finds at its next opening that this side is behind
        is_foreign = envelope.numbering != known.numbering and not (
            number == envelope.numbering.first == last + 1
        )
        if is_foreign or not self._fence.admits(*sender, envelope.epoch):
            counts.frames_refused += 1
            return
        counts.missing_frames += max(number - last - 1, 0)
        merged = merging.last_frames[sender] = _Last(max(number, last), envelope.numbering)
        merging.put_sender(*sender, envelope.epoch, merged)
        merging.reports += _reports_in(envelope)
        if calls is None:
            self._merge_records(merging, records, envelope.incarnation)
        elif number > last:
            _open(merging.batch, calls, envelope, counts)
        else:
            counts.duplicates_dropped += len(calls)

    def durable_positions(self) -> Mapping[int, int]:
        """Return up to where the frames' features survive a power cut, by lane; never blocks.

        Raises:
            StoreError: The disk failed.
        """
        merged, durable = self._merged, self._durability.durable()
        while merged and merged[0][0] <= durable:
            self._durable.update(merged.popleft()[1])
        return self._durable

    def last_frame(self, incarnation: str, partition: int) -> tuple[int, int]:
        """Return a partition's highest epoch and last merged frame; 0 for none."""
        sender = (incarnation, partition)
        return self._fence.epochs.get(sender, 0), self._last_frames.get(sender, _NOTHING).number

    def last_numbers(self, incarnation: str, device_ids: Sequence[str]) -> list[int]:
        """Return the numbers of devices' last features that were merged."""
        return [self._device(each).last(incarnation) for each in device_ids]

    def settle(self) -> None:
        """Block until what was merged survives a power cut."""
        self._durability.wait()

    def note_told(self, losses: int) -> None:
        """Note how many of ``stats.losses`` were reported; blocks until that is durable."""
        counts = msgspec.structs.replace(self.stats, told=losses)
        with RocksErrorMap(self._path):
            self._database[COUNTS_KEY] = _encode(counts)
        self.stats = counts
        self._durability.commit()
        self._durability.wait()

    @property
    def last_call(self) -> int:
        """Number of the last call that arrived."""
        return self.stats.calls

    def open_calls(self, after: int, limit: int) -> list[tuple[int, OpenCall]]:
        """Return calls that wait for their reply; see ``CallStore.open_calls``."""
        found: list[tuple[int, OpenCall]] = []
        start = CALL_PREFIX + _U64.pack(after + 1)
        for key, row in islice(scan_rocks(self._database, self._path, start, b"\x05"), limit):
            found.append((int(_U64.unpack(key[1:])[0]), _decode_call(row)))
        return found

    def close_call(self, number: int) -> None:
        """Forget a call whose reply was sent; see ``CallStore.close_call``."""
        with RocksErrorMap(self._path):
            self._database.delete(CALL_PREFIX + _U64.pack(number))
        self._durability.commit()

    def scan(self, device_id: str | None = None) -> Iterator[FeatureRecord]:
        """Iterate over features by device and sequence number; None means all devices.

        Features of a later incarnation come behind an earlier's.
        """
        start, last = b"\x10", b"\x11"
        if device_id is not None:
            start = device_prefix(device_id)
            last = prefix_end(start)
        for key, row in scan_rocks(self._database, self._path, start, last):
            end = len(key) - FEATURE_KEY.size - 1
            _, number = FEATURE_KEY.unpack_from(key, end + 1)
            kept = _decode_feature(row)
            yield FeatureRecord(
                key[1:end].decode(),
                kept.task,
                kept.task_version,
                number,
                kept.feature,
                kept.encoding,
                kept.event_time_ms,
            )

    def close(self) -> None:
        """Release the database; may be called twice.

        Raises:
            StoreError: What a failed write left cannot be closed cleanly.
        """
        self._durability.close()
        flushing = nullcontext() if self.sink_log is None else self.sink_log.flushing
        with flushing, RocksErrorMap(self._path), suppress(DbClosedError):
            self._database.close()

    def _hand_over(self, reports: list[ReportFrame]) -> None:
        # before the write batch: after a death they come again, and the sink has seen them
        if reports and self.report_sink is not None:
            self.report_sink.take(reports)

    def _merge_records(
        self, merging: Merging, records: list[FeatureRecord], incarnation: str
    ) -> None:
        rows, touched, counts, pack = (
            merging.rows,
            merging.touched,
            merging.counts,
            FEATURE_KEY.pack,
        )
        device_id, prefix, seen = "", b"", DeviceSeen([], [])
        merged = last = 0
        for record in records:
            if record.device_id != device_id:
                device_id = record.device_id
                prefix = device_prefix(device_id)
                found = touched.get(device_id)
                if found is None:
                    found = touched[device_id] = self._device(device_id)
                    if not found.incarnations:
                        counts.devices += 1
                seen, last = found, found.last(incarnation)
            number = record.sequence_number
            verdict, generation = seen.judge(incarnation, number)
            key = prefix + pack(generation, number)
            row = _encode((record.task, record.task_version, record.feature, record.encoding))
            if verdict is Verdict.SEEN:
                held = rows.get(key) or self._get(key)
                if held == row:
                    counts.duplicates_dropped += 1
                    continue
                if held is None:
                    counts.missing_features -= 1  # it was sent again
                else:
                    # its device forgot it and made this one: the table is what the device has
                    counts.differing_features += 1
                    merged -= 1
            else:
                if verdict is Verdict.GAP:
                    counts.gaps += 1
                    counts.missing_features += number - last - 1
                last = number
            merged += 1
            rows[key] = row
            if self.sink_log is not None:
                number = self.sink_log.end + len(merging.merged)
                merging.merged.append(as_merged(number, incarnation, record))
        counts.features += merged

    def _device(self, device_id: str) -> DeviceSeen:
        seen = self._seen.get(device_id)
        if seen is None:
            stored = self._get(b"\x02" + device_id.encode())
            seen = self._seen[device_id] = self._head(stored)
        return seen

    def _head(self, stored: bytes | None) -> DeviceSeen:
        return _decode_seen(stored) if stored else DeviceSeen()

    def _get(self, key: bytes) -> bytes | None:
        with RocksErrorMap(self._path):
            value: bytes | None = self._database.get(key)
            return value

    def _positions(self) -> dict[int, int]:
        rows = scan_rocks(self._database, self._path, _LANE, prefix_end(_LANE))
        return {
            int(_U32.unpack(key[len(_LANE) :])[0]): int(_U64.unpack(row)[0]) for key, row in rows
        }

    def _senders(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], _Last]]:
        epochs, frames = {}, {}
        for key, row in scan_rocks(self._database, self._path, b"\x01", b"\x02"):
            partition = int(_U32.unpack_from(key, len(key) - 4)[0])
            sender = (key[1:-4].decode(), partition)
            epochs[sender], number, since, first = _SENDER.unpack(row)
            frames[sender] = _Last(number, Numbering(since, first))
        return epochs, frames


def device_prefix(device_id: str) -> bytes:
    """Return what the keys of a device's features begin with."""
    return b"\x10" + device_id.encode() + b"\x00"


def _open(
    batch: WriteBatch, calls: list[CloudCall], envelope: UplinkEnvelope, counts: MergeCounts
) -> None:
    for call in calls:
        counts.calls += 1
        row = _encode(OpenCall(envelope.incarnation, call, envelope.partition))
        batch.put(CALL_PREFIX + _U64.pack(counts.calls), row)


def _decoded(body: bytes) -> tuple[list[CloudCall] | None, list[FeatureRecord]]:
    calls = decode_calls(body)
    return calls, [] if calls is not None or is_reports(body) else decode_body(body)


def _reports_in(envelope: UplinkEnvelope) -> list[ReportFrame]:
    if not is_reports(envelope.body):
        return []
    return [ReportFrame(envelope.incarnation, envelope.partition, envelope.number, envelope.body)]
