"""Figures of a release service's workers, which any worker can show.

Workers share a socket, so a scrape reaches any of them. Each worker writes its figures once a
second to a common folder. The worker that answers shows those of the others beside its own.
Threads beside the loop write and read, so no check waits.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.clock import wall_ms
from walle_stream.wire.metrics_text import Metrics

TELL_MS: Final = 1_000
"""Time between two writes of a worker."""

_DEAD_MS: Final = 30_000
"""A worker that wrote nothing for this long has ended."""

_COUNTERS: Final = {
    "checks_total": ("Checks of this worker by answer.", "answer"),
    "offers_total": ("Versions offered, by release.", "release"),
    "report_frames_total": ("Frames of devices' reports by outcome.", "outcome"),
    "reports_total": ("Devices' reports by outcome.", "outcome"),
    "reports_without_receipt_total": ("Reports of devices without a receipt.", "version"),
    "reports_with_invalid_receipt_total": (
        "Reports of devices with an invalid receipt.",
        "version",
    ),
    "refused_total": ("Requests that were not admitted.", "why"),
}
_GAUGES: Final = {
    "unfit_devices": ("Devices for whose Python a release's version was not checked.", "release"),
    "known_devices": ("Devices that this worker remembers.", ""),
    "device_classes": ("Classes of devices in memory.", ""),
    "generation": ("Generation of the table in use.", ""),
    "table_is_old": ("1 while a newer table cannot be loaded.", ""),
    "files_unread": ("Files of policies, keys and revocations that cannot be read.", ""),
    "open": ("1 while devices need no proof of identity.", ""),
}


class Figure(msgspec.Struct, frozen=True, array_like=True):
    """One number of one worker."""

    name: str
    """Name of the metric, without ``walle_release_``."""
    worker: str
    label: str
    """Label value, such as an answer or a release; empty for a number of the whole worker."""
    value: int


def render_figures(figures: Iterable[Figure]) -> str:
    """Return figures in Prometheus' text format, with every metric."""
    metrics = Metrics()
    made = {
        name: add(f"walle_release_{name}", text, ["worker", label][: 2 if label else 1])
        for add, every in ((metrics.counter, _COUNTERS), (metrics.gauge, _GAUGES))
        for name, (text, label) in every.items()
    }
    labels = {name: label for name, (_, label) in (_COUNTERS | _GAUGES).items()}
    for figure in figures:
        if figure.name in made:  # a restarted worker may be of a newer version
            own = {"worker": figure.worker, labels[figure.name]: figure.label}
            made[figure.name].set(figure.value, **own)
    return metrics.render()


class FiguresFolder:
    """Folder in which the workers of one service leave their figures; every method blocks."""

    def __init__(self, folder: Path, worker: str) -> None:
        """Set the paths without writing."""
        self._folder = folder
        self._own = folder / f"{worker}.json"

    def write(self, figures: Iterable[Figure]) -> None:
        """Write figures in place of the previous ones.

        Raises:
            OSError: The disk is full, or the folder is missing.
        """
        part = self._own.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(list(figures)))
        part.replace(self._own)

    def others(self) -> list[Figure]:
        """Return the figures of the other live workers."""
        figures: list[Figure] = []
        for path in self._folder.glob("*.json"):
            if path == self._own:
                continue
            try:
                if wall_ms() - path.stat().st_mtime * 1_000 > _DEAD_MS:
                    path.unlink(missing_ok=True)
                    continue
                figures += msgspec.json.decode(path.read_bytes(), type=list[Figure])
            except (OSError, msgspec.MsgspecError):
                continue  # the worker ended meanwhile
        return figures

    def remove(self) -> None:
        """Delete this worker's figures, because the worker ends."""
        self._own.unlink(missing_ok=True)
