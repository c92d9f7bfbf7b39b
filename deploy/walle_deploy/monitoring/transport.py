"""Carries reports to a monitor in another process: batches of frames over HTTP.

For a cloud side in another process than the monitor: ``HttpReportSink`` is the sender, and the
release service calls ``read_batch``. ``walle cloud`` keeps waiting reports in its tables instead.
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
"""Largest batch of a device that reports for itself; it has one device's counts."""

_OWN_FRAMES_MAX: Final = 1_000
_INFLATED: Final = 4
"""Largest ratio of a batch's inflated length to its own limit."""


def read_batch(batch: bytes, device: str = "") -> list[ReportFrame]:
    """Return the frames of a batch, before any counting.

    A ``device`` may report only for itself; without one, the caller may report for any device.

    Raises:
        EnvelopeError: The batch is malformed, too large (also inflated), or has too many frames
            for one device.
    """
    frames = [ReportFrame(*frame) for frame in decode_batch(batch)]
    most = _INFLATED * (OWN_MAX_BYTES if device else BATCH_MAX_BYTES)
    claimed = [claimed_bytes(frame.body) for frame in frames]  # longer ones are not decoded
    if (size := sum(length for length in claimed if length <= REPORTS_MAX_BYTES)) > most:
        raise EnvelopeError(f"a batch has {size} bytes inflated: at most {most} are allowed")
    if device and len(frames) > _OWN_FRAMES_MAX:
        raise EnvelopeError(
            f"a batch has {len(frames)} frames of device {device!r}: at most {_OWN_FRAMES_MAX} "
            "are allowed"
        )
    return frames


class HttpReportSink:
    """A ``ReportSink`` that sends frames to a service, in a thread of its own.

    Features never wait for it. While the service is away, it keeps frames in bounded memory. It
    drops the oldest frames beyond that, and counts them. A killed process loses its unsent frames.
    """

    def __init__(
        self,
        url: str,
        max_bytes: int = WAITING_MAX_BYTES,
        backoff_s: float = BACKOFF_S,
        token: Callable[[], str] | None = None,
    ) -> None:
        """Start the thread; ``url`` has no path.

        ``max_bytes`` limits waiting frames. ``backoff_s`` is the time before the second attempt;
        it doubles for each further one, up to 10 s. ``token`` is called before each request.
        """
        self._held = HeldReports((), max_bytes)
        self._changed = threading.Condition()
        self._outlet = ReportOutlet(url, lambda: [self], token, backoff_s)

    @property
    def dropped(self) -> int:
        """Frames dropped because the service was away for too long or refused them."""
        return self._held.dropped + self._outlet.dropped

    def take(self, frames: Sequence[ReportFrame]) -> None:
        """Queue frames; see ``ReportSink.take``. Never blocks."""
        with self._changed:
            self._held.add(frames)

    def first_reports(self, max_bytes: int) -> Sequence[Waiting]:
        """Return the oldest frames; see ``ReportTable.first_reports``."""
        with self._changed:
            return self._held.first(max_bytes)

    def forget_reports(self, part: Sequence[Waiting]) -> None:
        """Remove frames; see ``ReportTable.forget_reports``."""
        with self._changed:
            self._held.forget(part)
            self._changed.notify()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send waiting frames for at most ``timeout_s``, then drop and count the rest."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held.waiting, timeout_s)
        self._outlet.close()
        with self._changed:
            self._held.drop_all()
