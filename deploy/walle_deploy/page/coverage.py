"""A chart of a release's devices over its steps."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from walle_deploy.monitoring.attribution import group_scope
from walle_deploy.monitoring.counts import active_devices
from walle_deploy.page.templates import Html, filled
from walle_deploy.release.audit import AuditEntry
from walle_deploy.release.progress import Progress
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import WINDOW_MS

_LEFT, _RIGHT, _WIDTH, _LABEL = 84, 884, 900, 84
"""Coordinates of the picture, and the width of a step's name."""
_SIZES: Final = (1, 2, 5, 10, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080, 43_200)
"""Minutes between two marks. Beyond a day, the store has only whole hours."""
_DAY, _BINS, _TICKS = 1_440, 150, 10


def coverage_chart(look: ReadTransaction, progress: Progress, log: Sequence[AuditEntry]) -> Html:
    """Return shares of devices over time, as planned by the steps and as reported by devices.

    The log is the release's, the oldest entry first.
    """
    begin = progress.created_ms
    end = max(look.now_ms() if progress.is_open else progress.since_ms, begin + WINDOW_MS)
    moments = list(_moments(look, progress, end))

    def x(at_ms: float) -> float:
        return _LEFT + (at_ms - begin) / (end - begin) * (_RIGHT - _LEFT)

    most = _round_up(max((max(new, control) for _, new, control in moments), default=0))
    planned, names, room = [(x(begin), 0.0)], [], float(_WIDTH)
    for entry in log:
        planned += [(x(entry.at_ms), planned[-1][1]), (x(entry.at_ms), entry.percent / 100)]
    for entry in reversed(log):  # if two names do not fit, the later one is shown
        left = min(x(entry.at_ms), _WIDTH - _LABEL)
        if left + _LABEL <= room:
            share = f" {entry.percent:g} %" if entry.stage == "gray" else ""
            names.append((left, f"{entry.stage.replace('_', ' ')}{share}"))
            room = left
    last = planned[-1][1]
    return filled(
        "chart",
        planned=_line([*planned, (_RIGHT, last), (_RIGHT, 0)]),
        measured=_line([(x(at), n / (n + c)) for at, n, c in moments if n + c]),
        new=_line([(x(at), n / most) for at, n, _ in moments]),
        control=_line([(x(at), c / most) for at, _, c in moments]),
        most=most,
        half=most / 2,
        steps=[x(entry.at_ms) for entry in log],
        names=names[::-1],
        times=[(x(at_ms), text) for at_ms, text in _times(begin, end)],
    )


def _moments(
    look: ReadTransaction, progress: Progress, until_ms: int
) -> Iterator[tuple[float, float, float]]:
    """Yield epoch ms, and the mean number of reporting devices per minute of both groups."""
    end = until_ms // WINDOW_MS
    counted: dict[int, list[int]] = {}
    for index, group in enumerate(("new", "control")):
        scope = group_scope(progress.task, progress.release, group)
        for stored in look.scopes([scope]).values():
            # window 0 holds everything older than a month; the current minute is not over
            for window in look.windows(stored.id, 1):
                at = window.last_ms // WINDOW_MS
                at -= at % 60 * (window.number < stored.minutes_from)
                if at < end:
                    counted.setdefault(at, [0, 0])[index] += active_devices(window.data)
    first, last = min(counted, default=0), max(counted, default=0)
    size = _size(last - first, _BINS)
    sums: dict[int, list[int]] = {}
    for number, (new, control) in sorted(counted.items()):
        devices = sums.setdefault(number // size, [0, 0])
        devices[:] = devices[0] + new, devices[1] + control
    for number, (new, control) in sums.items():
        begins, ends = max(first, number * size), min(end, (number + 1) * size)
        minutes = ends - begins
        yield (begins + ends) / 2 * WINDOW_MS, new / minutes, control / minutes


def _times(begin: int, end: int) -> Iterator[tuple[int, str]]:
    step = _size((end - begin) / WINDOW_MS, _TICKS) * WINDOW_MS
    for at_ms in range(-(-begin // step) * step, end + 1, step):
        is_day = at_ms // WINDOW_MS % _DAY == 0
        yield (
            at_ms,
            f"{datetime.fromtimestamp(at_ms / 1_000, UTC):{'%b %d' if is_day else '%H:%M'}}",
        )


def _line(every: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return (*every, *((x + 2, y) for x, y in every[:1] if len(every) == 1))  # one point is no line


def _size(minutes: float, most: int) -> int:
    return next((size for size in _SIZES if minutes / size < most), _SIZES[-1])


def _round_up(value: float) -> float:
    size = 10.0 ** (len(str(int(value))) - 1)
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= value)
