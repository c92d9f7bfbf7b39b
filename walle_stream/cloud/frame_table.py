"""The feature table of a tunnel whose frames come in one order: those of the embedded log.

It keeps all features. The tunnel may forget a frame once its write batch is durable
(``store.durability``). Calls are opened once per frame: a device that sends one in a later frame,
too, asks again, as its reply was lost in a power cut.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import override

import msgspec

from walle_stream.cloud.merging import Merging, Stretch
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.errors import EnvelopeError
from walle_stream.ports import ReportFrame, ReportSink
from walle_stream.tunnel.receiver import MergeCounts, SentFrame
from walle_stream.wire.calls import decode_calls
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body
from walle_stream.wire.reports import is_reports


class FrameTable(PartitionTable):
    """The cloud side of a data directory. One thread, but for look-ups."""

    def __init__(
        self, path: Path, *, read_only: bool = False, sync_ms: float | None = None
    ) -> None:
        """Open it; see ``PartitionTable``."""
        super().__init__(path, None, keeps_calls=True, read_only=read_only, sync_ms=sync_ms)
        self.report_sink: ReportSink | None = None
        """Gets frames of reports before they are merged; they are let go where None."""
        self._last_call = self.stats.calls
        self._merged: deque[tuple[int, int]] = deque()  # ticket and position, not durable yet
        self._durable = self.position

    @property
    def position(self) -> int:
        """Up to where the tunnel's frames are merged; 0 where nothing was."""
        return self.place.next

    def merge(self, frames: Sequence[tuple[int, bytes]]) -> MergeCounts:
        """Merge frames in one write batch and return the cumulative counts; blocks.

        Frames of the tunnel are (position, envelope), ascending.

        Raises:
            StoreError: Nothing of them was written.
        """
        stretches = [stretch for _, data in frames if (stretch := _stretch(data)) is not None]
        position = frames[-1][0] if frames else self.position
        self.take(stretches, b"", position, len(frames) - len(stretches))
        self._merged.append((self._durability.written, position))
        return self.stats

    def durable_position(self) -> int:
        """Return up to where the frames' features survive a power cut; never blocks.

        Raises:
            StoreError: The disk failed.
        """
        merged, durable = self._merged, self._durability.durable()
        while merged and merged[0][0] <= durable:
            self._durable = merged.popleft()[1]
        return self._durable

    def last_frame(self, incarnation: str, partition: int) -> tuple[int, int]:
        """Return a partition's highest epoch and last merged frame; 0 for none."""
        seen = self._senders.seen(incarnation, partition)
        return seen.epoch, seen.frame.number

    def last_numbers(self, incarnation: str, device_ids: Iterable[str]) -> list[int]:
        """Return the numbers of devices' last features that were merged."""
        return [self._device(each).last(incarnation) for each in device_ids]

    def settle(self) -> None:
        """Block until what was merged survives a power cut."""
        self._durability.wait()

    def note_told(self, losses: int) -> None:
        """Note how many of ``stats.losses`` were reported; blocks until that is durable."""
        counts = msgspec.structs.replace(self.stats, told=losses)
        self._write(Merging(counts, self.place))
        self.settle()

    @override
    def _hold_reports(self, merging: Merging) -> None:
        # before the write batch: after a death they come again, and the sink has seen them
        if merging.reports and self.report_sink is not None:
            self.report_sink.take(merging.reports)


def _stretch(data: bytes) -> Stretch | None:
    # None for what is no frame of ours
    try:
        envelope = decode_uplink(data)
        body, frame = envelope.body, SentFrame(envelope.number, envelope.numbering)
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
