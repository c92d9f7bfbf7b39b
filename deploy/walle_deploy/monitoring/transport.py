"""Reports on their way to a monitor in another process: batches of frames over HTTP.

For cloud sides that are not the monitor's own process: ``HttpReportSink`` there,
``read_batch`` behind a path of the release service. ``walle cloud`` has what waits in its tables.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from walle_stream.cloud.reports import (
    BACKOFF_S,
    WAITING_MAX_BYTES,
    HeldReports,
    ReportOutlet,
    Waiting,
)
from walle_stream.errors import EnvelopeError
from walle_stream.ports import ReportFrame
from walle_stream.wire.report_batch import BATCH_MAX_BYTES, decode_batch
from walle_stream.wire.reports import REPORTS_MAX_BYTES, claimed_bytes

OWN_MAX_BYTES: Final = 1024 * 1024
"""Largest batch of a device that reports for itself: it has one device's counts."""

_OWN_FRAMES_MAX: Final = 1_000
_INFLATED: Final = 4
"""So many times as long a batch may be inflated."""


def read_batch(batch: bytes, device: str = "") -> list[ReportFrame]:
    """Return the frames of a batch, of which nothing is counted yet.

    A device may speak for itself alone; who is none, for any.

    Raises:
        EnvelopeError: It is no batch, or too large, also inflated, or has too many frames for one
            device.
    """
    frames = [ReportFrame(*frame) for frame in decode_batch(batch)]
    most = _INFLATED * (OWN_MAX_BYTES if device else BATCH_MAX_BYTES)
    claimed = [claimed_bytes(frame.body) for frame in frames]  # longer ones are not decoded
    if (size := sum(length for length in claimed if length <= REPORTS_MAX_BYTES)) > most:
        raise EnvelopeError(f"a batch of {size} bytes inflated: at most {most}")
    if device and len(frames) > _OWN_FRAMES_MAX:
        raise EnvelopeError(
            f"a batch of {len(frames)} frames of device {device!r}: at most {_OWN_FRAMES_MAX}"
        )
    return frames


class HttpReportSink:
    """A ``ReportSink`` that sends frames to a service; a thread of its own does.

    Features never wait for it: what does not fit into its memory while the service is away
    is dropped, the oldest first, and counted. So is what a dying process had not sent.
    """

    def __init__(
        self,
        url: str,
        max_bytes: int = WAITING_MAX_BYTES,
        backoff_s: float = BACKOFF_S,
        token: Callable[[], str] | None = None,
    ) -> None:
        """Start its thread; ``url`` has no path.

        ``max_bytes`` are of frames that wait. ``backoff_s`` is before the second attempt, doubled
        for each further one, up to 10 s. ``token`` is asked before each request.
        """
        self._held = HeldReports((), max_bytes)
        self._changed = threading.Condition()
        self._outlet = ReportOutlet(url, lambda: [self], token, backoff_s)

    @property
    def dropped(self) -> int:
        """Frames, because the service was away for too long or refused them."""
        return self._held.dropped + self._outlet.dropped

    def take(self, frames: Sequence[ReportFrame]) -> None:
        """Let frames wait for their turn; see ``ReportSink.take``. Never blocks."""
        with self._changed:
            self._held.add(frames)

    def first_reports(self, max_bytes: int) -> Sequence[Waiting]:
        """Return the oldest frames; see ``ReportTable.first_reports``."""
        with self._changed:
            return self._held.first(max_bytes)

    def forget_reports(self, part: Sequence[Waiting]) -> None:
        """Let frames go; see ``ReportTable.forget_reports``."""
        with self._changed:
            self._held.forget(part)
            self._changed.notify()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, for so long at most; then what is left is dropped, and counted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held.waiting, timeout_s)
        self._outlet.close()
        with self._changed:
            self._held.drop_all()
