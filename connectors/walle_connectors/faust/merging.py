"""What happens to one record that came up: fence, merge, refuse. Pure but for the tables.

Tables are mappings of bytes to bytes, Faust's or a dict. Safe to be killed anywhere: what
a table has on this disk may be ahead of its changelog topic, so a record that comes again
writes the unchanged value again. Without that, a value that was written here, but whose
changelog record a kill cut off, would exist on this disk only, and be lost with it.
"""

from collections.abc import Iterable, MutableMapping
from typing import Final

import msgspec

from walle_connectors.faust.device_row import decode_row, encode_row
from walle_stream.errors import EnvelopeError
from walle_stream.tunnel.receiver import Fence, Verdict
from walle_stream.wire.record import RecordEnvelope, decode_record

type Table = MutableMapping[bytes, bytes]
"""Of devices, or of epochs."""

KEEP_DEFAULT: Final = 50
"""Latest features of a device and task that are kept as they are."""


class RecordCounts(msgspec.Struct):
    """What this process did with records since it started."""

    features: int = 0
    duplicates_dropped: int = 0
    gaps: int = 0
    calls_unanswered: int = 0
    """Of services, which this cloud side does not answer."""
    refused: int = 0
    """Malformed, in a wrong partition, or of an older epoch."""


class Merger:
    """Merges records into the tables of the partition that they came from. One thread."""

    def __init__(self, devices: Table, epochs: Table, keep: int = KEEP_DEFAULT) -> None:
        """Begin with the tables as they are.

        Args:
            devices: Device to row.
            epochs: ``INCARNATION/PARTITION`` to the highest epoch seen, in digits.
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
    ) -> None:
        """Take a record.

        Args:
            partition: Of the topic.
            key: The record's; not trusted, as the rest.
            value: The record's.
            headers: The record's.

        Raises:
            EnvelopeError: It is refused; nothing changed but the counter.
        """
        try:
            envelope, feature = decode_record(key, value, headers)
            self._check(partition, envelope, feature)
        except EnvelopeError:
            self.counts.refused += 1
            raise
        if envelope.service:
            self.counts.calls_unanswered += 1
            return
        device = envelope.device_id.encode()
        row = decode_row(self._devices.get(device))
        verdict = row.merge(envelope, feature, self._keep)
        # also of a duplicate: see the module
        self._devices[device] = encode_row(row)
        if verdict is Verdict.SEEN:
            self.counts.duplicates_dropped += 1
        else:
            self.counts.features += 1
            self.counts.gaps += verdict is Verdict.GAP

    def _check(self, partition: int, envelope: RecordEnvelope, feature: bytes) -> None:
        number = envelope.sequence_number
        name = f"device {envelope.device_id!r}, number {number}"
        if envelope.partition != partition:
            # its place in the topic is what orders and fences it
            raise EnvelopeError(
                f"{name}: sent by partition {envelope.partition}, but found in {partition} of the "
                "topic: the topic has another partition count than the sender"
            )
        if number < 1:
            raise EnvelopeError(f"{name}: numbers begin at 1")
        try:
            msgspec.json.decode(feature)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise EnvelopeError(f"{name}: the value is no JSON: {error}") from error
        self._fence(partition, envelope, name)

    def _fence(self, partition: int, envelope: RecordEnvelope, name: str) -> None:
        key = f"{envelope.incarnation}/{partition}".encode()
        highest = int(self._epochs.get(key) or b"0")
        fence = Fence({(envelope.incarnation, partition): highest})
        if not fence.admits(envelope.incarnation, partition, envelope.epoch):
            raise EnvelopeError(
                f"{name}: epoch {envelope.epoch} of partition {partition} is over, {highest} was "
                "seen: the sender lost the partition to another host"
            )
        if envelope.epoch > highest or key not in self._confirmed:
            self._epochs[key] = b"%d" % envelope.epoch
            self._confirmed.add(key)
