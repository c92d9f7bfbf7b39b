"""What happens to one record that came up: fence, merge, refuse. Pure but for the tables.

Tables are mappings of bytes to bytes, Faust's or a dict. Safe to be killed anywhere: what
a table has on this disk may be ahead of its changelog topic, so a record that comes again
writes the unchanged value again. Without that, a value that was written here, but whose
changelog record a kill cut off, would exist on this disk only, and be lost with it.

Epochs are remembered with the offset at which each was first seen, and a record is judged
by those from before it: one that comes again is not its partition's past owner's because
a new owner's records were seen behind it. The row of epochs has a changelog of its own, which
may be ahead of the rows that such records bring.
"""

from collections.abc import Iterable, MutableMapping
from typing import Final

import msgspec

from walle_connectors.faust.device_row import decode_row, encode_row
from walle_stream.errors import EnvelopeError, EpochOverError
from walle_stream.ports import ReportFrame
from walle_stream.tunnel.receiver import Fence, Verdict
from walle_stream.types import device_id_problem
from walle_stream.wire.record import RecordEnvelope, decode_record
from walle_stream.wire.report_record import ReportRecord, decode_report_record

type _Sender = RecordEnvelope | ReportRecord

type Table = MutableMapping[bytes, bytes]
"""Of devices, or of epochs."""

KEEP_DEFAULT: Final = 50
"""Latest features of a device and task that are kept as they are."""

_EPOCHS_KEPT: Final = 32


class RecordCounts(msgspec.Struct):
    """What this process did with records since it started."""

    features: int = 0
    duplicates_dropped: int = 0
    gaps: int = 0
    calls_unanswered: int = 0
    """Of services, which this cloud side does not answer."""
    reports: int = 0
    """Frames of reports, also such as came before; no feature of theirs is merged."""
    refused: int = 0
    """Malformed, in a wrong partition, or of an older epoch."""


class Merger:
    """Merges records into the tables of the partition that they came from. One thread."""

    def __init__(self, devices: Table, epochs: Table, keep: int = KEEP_DEFAULT) -> None:
        """Begin with the tables as they are.

        Args:
            devices: Device to row.
            epochs: ``INCARNATION/PARTITION`` to the epochs seen, see ``latest_epoch``.
            keep: Latest features per device and task, ≥ 1.
        """
        self._devices = devices
        self._epochs = epochs
        self._keep = keep
        self._confirmed: set[bytes] = set()
        self.counts = RecordCounts()

    def forget_confirmed(self) -> None:
        """Partitions were given or taken: what was written may have been elsewhere."""
        self._confirmed.clear()

    def merge(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        offset: int,
    ) -> None:
        """Take a record.

        Args:
            partition: Of the topic.
            key: The record's; not trusted, as the rest.
            value: The record's.
            headers: The record's.
            offset: In the partition of the topic.

        Raises:
            EpochOverError: Its sender lost the partition; nothing changed but the counter.
            EnvelopeError: It is refused for another reason; the same.
        """
        try:
            envelope, feature = decode_record(key, value, headers)
            epochs = self._fence(partition, envelope, _check(partition, envelope, feature), offset)
            verdict, row = self._judge(envelope, feature)
        except EnvelopeError:
            self.counts.refused += 1
            raise
        self._remember(partition, envelope, epochs)
        if verdict is None:
            self.counts.calls_unanswered += 1
            return
        # also of a duplicate: see the module
        self._devices[envelope.device_id.encode()] = row
        if verdict is Verdict.SEEN:
            self.counts.duplicates_dropped += 1
        else:
            self.counts.features += 1
            self.counts.gaps += verdict is Verdict.GAP

    def take_report(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        offset: int,
    ) -> ReportFrame:
        """Take a record of reports, as ``merge`` takes others; nothing is merged.

        Returns:
            The frame, for who counts them.

        Raises:
            EpochOverError: Its sender lost the partition; nothing changed but the counter.
            EnvelopeError: It is refused for another reason; the same.
        """
        try:
            record = decode_report_record(key, value, headers)
            name = f"reports of incarnation {record.incarnation}, number {record.number}"
            _check_place(partition, record.partition, name)
            epochs = self._fence(partition, record, name, offset)
        except EnvelopeError:
            self.counts.refused += 1
            raise
        self._remember(partition, record, epochs)
        self.counts.reports += 1
        return ReportFrame(record.incarnation, record.partition, record.number, record.body)

    def _remember(self, partition: int, sender: _Sender, epochs: bytes) -> None:
        if epochs:
            key = _epochs_key(sender, partition)
            self._epochs[key] = epochs
            self._confirmed.add(key)

    def _judge(self, envelope: RecordEnvelope, feature: bytes) -> tuple[Verdict | None, bytes]:
        # the row as it is to be written; no verdict on a call, which takes no number
        if envelope.service:
            return None, b""
        row = decode_row(self._devices.get(envelope.device_id.encode()))
        return row.merge(envelope, feature, self._keep), encode_row(row)

    def _fence(self, partition: int, envelope: _Sender, name: str, offset: int) -> bytes:
        # the row of epochs as it is to be written; empty for one that stays
        key = _epochs_key(envelope, partition)
        seen = _decode_epochs(self._epochs.get(key))
        before = max((epoch for epoch, first in seen if first < offset), default=0)
        fence = Fence({(envelope.incarnation, partition): before})
        if not fence.admits(envelope.incarnation, partition, envelope.epoch):
            raise EpochOverError(
                f"{name}: epoch {envelope.epoch} of partition {partition} is over, {before} was "
                "seen: the sender lost the partition to another host"
            )
        is_new = not seen or envelope.epoch > seen[-1][0]
        if is_new:
            seen = [*seen, (envelope.epoch, offset)][-_EPOCHS_KEPT:]
        if is_new or key not in self._confirmed:
            return b" ".join(b"%d@%d" % each for each in seen)
        return b""


def latest_epoch(row: bytes) -> int:
    """Return the highest epoch of a row of the table of epochs.

    Args:
        row: ``EPOCH@OFFSET`` of the latest epochs, ascending, with blanks between: where each
            was first seen. One without an offset, of an earlier version, was before all.
    """
    return _decode_epochs(row)[-1][0]


def _decode_epochs(row: bytes | None) -> list[tuple[int, int]]:
    pairs = [each.partition(b"@") for each in (row or b"").split()]
    return [(int(epoch), int(first or b"-1")) for epoch, _, first in pairs]


def _epochs_key(envelope: _Sender, partition: int) -> bytes:
    return f"{envelope.incarnation}/{partition}".encode()


def _check(partition: int, envelope: RecordEnvelope, feature: bytes) -> str:
    # how the record is called in what is said of it
    number = envelope.sequence_number
    problem = device_id_problem(envelope.device_id)
    if problem is not None:
        # nobody could look it up, and with NUL it might be a key of Faust's own in its table
        raise EnvelopeError(f"a record's key is no device: {problem}")
    name = f"device {envelope.device_id!r}, number {number}"
    _check_place(partition, envelope.partition, name)
    if number < 1:
        raise EnvelopeError(f"{name}: numbers begin at 1")
    try:
        msgspec.json.decode(feature)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EnvelopeError(f"{name}: the value is no JSON: {error}") from error
    return name


def _check_place(partition: int, sent_by: int, name: str) -> None:
    if sent_by != partition:
        # its place in the topic is what orders and fences it
        raise EnvelopeError(
            f"{name}: sent by partition {sent_by}, but found in {partition} of the "
            "topic: the topic has another partition count than the sender"
        )
