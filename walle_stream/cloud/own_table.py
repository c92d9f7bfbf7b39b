"""The cloud side of one partition with an embedded tunnel: rows in the partition's own database.

It keeps all features and downlink messages. Commits, frames and merges are rows of one log, and a
power cut takes the end of all of them. Neither side ever knows of anything that the other one has
forgotten. A snapshot of the partition includes its cloud side.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import override

from walle_stream.cloud.merging import Merging, Stretch
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.errors import EnvelopeError, StoreError
from walle_stream.ports import ReportFrame, ReportSink
from walle_stream.store.keys import CLOUD_PREFIX
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import decode_calls
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body
from walle_stream.wire.reports import is_reports

_DOWN, _BEHIND_DOWN = b"\x03", b"\x04"


class OwnTable(PartitionTable):
    """The cloud side of a partition that is open here. Any thread."""

    def __init__(self, store: PartitionStore, report_sink: ReportSink | None = None) -> None:
        """Open the cloud side in an opened partition.

        The sink gets frames of reports before they are merged; without a sink they are dropped.
        """
        super().__init__(store.path, None, keeps_calls=True, within=store.space(CLOUD_PREFIX))
        self.partition = store
        self._last_call = self.stats.calls  # calls are numbered by their count
        self._report_sink = report_sink
        down = [key for key, _ in self._space.scan(_DOWN)]
        self._last_down = int.from_bytes(down[-1][1:]) if down else 0
        self._released = 0
        self.leave: Callable[[], None] = self.close
        """Called before the database is closed; see ``Tenant.leave``."""

    def merge(self, frames: Sequence[bytes]) -> None:
        """Merge frames of the partition in one write batch; blocks.

        Raises:
            StoreError: None of the frames was written.
        """
        stretches = [stretch for data in frames if (stretch := _stretch(data)) is not None]
        position = self.place.next + len(frames)
        self.take(stretches, b"", position, len(frames) - len(stretches))

    def send_down(self, messages: Sequence[bytes]) -> int:
        """Append messages in one write, and return its ticket; see ``store.durability``.

        Raises:
            StoreError: None of the messages was written.
        """
        with self._lock:
            batch = self._space.batch()
            for position, message in enumerate(messages, self._last_down + 1):
                batch.put(_DOWN + position.to_bytes(8), message)
            self._space.write(batch)
            self._last_down += len(messages)
        return self.partition.durability.commit()

    def is_durable(self, ticket: int) -> bool:
        """Return whether sent messages survive a power cut; never blocks."""
        return self.partition.durability.durable() >= ticket

    def receive_down(self, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages after a position; see ``Downlink.receive``."""
        if self._last_down <= position:
            return ()
        found: list[tuple[int, bytes]] = []
        start = _DOWN + (position + 1).to_bytes(8)
        for key, message in self._space.scan(start, _BEHIND_DOWN):
            found.append((int.from_bytes(key[1:]), message))
            max_bytes -= len(message)
            if max_bytes <= 0:
                break
        return found

    def release_down(self, position: int) -> None:
        """Delete messages; see ``Downlink.release``. The last one stays, as positions continue."""
        if position <= self._released:
            return
        self._released, batch = position, self._space.batch()
        batch.delete_range(_DOWN, _DOWN + min(position + 1, self._last_down).to_bytes(8))
        self._space.write(batch)
        self.partition.durability.commit()

    # Methods of ``Tenant``

    def copied(self) -> None:
        """Record the contents of the copy; see ``Tenant.copied``."""
        if self.sink_log is not None:
            self.sink_log.copied()

    def kept(self) -> None:
        """Release the contents of the copy to sinks; see ``Tenant.kept``."""
        if self.sink_log is not None:
            with suppress(StoreError):  # the table was closed: the next owner does it
                self.sink_log.kept()

    @override
    def _write(self, merging: Merging) -> None:
        super()._write(merging)
        self.partition.durability.commit()

    @override
    def _hold_reports(self, merging: Merging) -> None:
        # before the write batch: after a crash the reports come again, and the sink drops them
        if merging.reports and self._report_sink is not None:
            self._report_sink.take(merging.reports)


def _stretch(data: bytes) -> Stretch | None:
    # None for data that is no frame of ours
    try:
        envelope = decode_uplink(data)
        body, frame = envelope.body, envelope.number
        sender = envelope.incarnation, envelope.partition, envelope.epoch
        if is_reports(body):
            return Stretch(
                *sender, reports=[ReportFrame(*sender[:2], envelope.number, body)], frame=frame
            )
        calls = decode_calls(body)
        if calls is not None:
            return Stretch(*sender, calls=calls, frame=frame)
        return Stretch(*sender, decode_body(body), frame=frame)
    except EnvelopeError:
        return None
