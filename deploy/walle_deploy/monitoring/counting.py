"""Counts reports in a transaction of the store. The cost grows with the reports alone.

Counting reads and writes one row of each device in each of its scopes. It also takes the device
out of the window of its previous report. No other row changes.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from walle_deploy.model.health import LEVELS
from walle_deploy.monitoring.attribution import AttributedReport, group_scope
from walle_deploy.monitoring.counts import ReportCounts, WindowCounts, encode_counts, merged_counts
from walle_deploy.monitoring.folding import NEVER_FOLDED, kept_from
from walle_deploy.store.counter import CountTransaction
from walle_deploy.store.rows import LAST, CountedDevice, CountedWindow, Scope, StoredScope

type _Device = tuple[int, int]
type _Moves = dict[tuple[int, int], list[int]]

_BESIDE: Final = {"new": "control", "control": "new"}
_NEVER: Final = -1
_MOST: Final = 2**53
"""Largest count of a device, whatever it claims; databases have 64-bit integers."""
_UNKNOWN: Final = CountedDevice(0, 0, _NEVER, _NEVER, _NEVER, _NEVER)


class ReportBatch:
    """Reports that are counted together. One thread."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._parts: dict[Scope, ReportCounts] = {}
        self._unproven: dict[tuple[str, str], tuple[int, int]] = {}
        self._last: dict[Scope, dict[int, Scope]] = {}

    def add(self, report: AttributedReport) -> bool:
        """Add a report of a published version, and return whether anything of it counts."""
        if report.bare or report.wrong:
            name = report.version[:2]
            bare, wrong = self._unproven.get(name, (0, 0))
            self._unproven[name] = bare + report.bare, wrong + report.wrong
        for scope, counts in report.parts.items():
            self._parts.setdefault(scope, ReportCounts()).add(counts)
        if report.parts:
            task = Scope(report.version.task, "", group=LAST)
            self._last.setdefault(task, {}).update(dict.fromkeys(report.devices, report.version))
        return bool(report.parts)

    def write(self, transaction: CountTransaction, now_ms: int) -> int:
        """Write the counts, and return the number of the current window.

        Reports that count for nothing make no row.
        """
        number = transaction.begin_window(now_ms)
        transaction.add_unproven(self._unproven)
        if not self._parts:
            return number
        beside = {
            scope: group_scope(scope.task, scope.release, _BESIDE[scope.group])
            for scope in self._parts
            if scope.group in _BESIDE
        }
        wanted = {*self._parts, *self._last, *beside.values()}
        scopes = dict(transaction.scopes(wanted))
        for scope in sorted(self._parts.keys() - scopes.keys()):
            scopes[scope] = transaction.make_scope(scope, *kept_from(number))
        for scope in sorted(self._last.keys() - scopes.keys()):
            scopes[scope] = transaction.make_scope(scope, *NEVER_FOLDED)
        others = {
            scopes[scope].id: scopes[other].id for scope, other in beside.items() if other in scopes
        }
        own = {
            (scopes[scope].id, device)
            for scope, part in self._parts.items()
            for device in part.devices
        }
        own |= {(scopes[task].id, device) for task, last in self._last.items() for device in last}
        rows = dict(
            transaction.counted(own | {(others[i], device) for i, device in own if i in others})
        )
        names = {scope.release for scope in self._parts if scope.release}
        releases = {name: transaction.release(name) for name in names}
        moves: _Moves = defaultdict(lambda: [0, 0, 0])
        for scope, part in self._parts.items():
            stored, release = scopes[scope], releases.get(scope.release)
            if release and release.offer and release.offer.step_ms != stored.step_ms:
                stored = stored._replace(step_ms=release.offer.step_ms, step_from=number)
                transaction.put_edges(stored)
            _count_devices(part, _Turn(stored, number), rows, moves, others.get(stored.id))
            row = stored.row_of(number)
            before = transaction.window(stored.id, row)
            moved = moves.pop((stored.id, row), [0, 0, 0])
            transaction.put_window(stored.id, _grown(before, row, moved, part.counts, now_ms))
        for task, last in self._last.items():
            stored = scopes[task]
            _move_to_last(stored, {device: scopes[last[device]].id for device in last}, rows, moves)
            for version in {scopes[last_scope].id for last_scope in last.values()}:
                if transaction.window(stored.id, version) is None:
                    transaction.put_window(stored.id, CountedWindow(version, 0, 0, 0, 0, b""))
        transaction.put_counted({key: rows[key] for key in own})
        transaction.move_devices({key: (s, f, c) for key, (s, f, c) in moves.items()})
        return number


class _Turn(NamedTuple):
    stored: StoredScope
    number: int

    def is_weighed(self, device: CountedDevice) -> bool:
        """Return whether times and sizes of a device's first report in this window count.

        For a version they count once a minute, for a group of a release once a step. Groups are
        compared by device, so a device that always runs must weigh no more than others.

        In a group, the report of the second minute of the step in which the device runs counts.
        The first run with a version includes its loading time. Without this rule, devices that
        have had their version for long would be compared earlier than those that just got it.
        Frequent runners would then be the majority early in a step.
        """
        if self.stored.scope.group not in _BESIDE:
            return True
        return device.weighed < self.stored.step_from <= device.seen


def _count_devices(
    part: ReportCounts,
    turn: _Turn,
    rows: dict[_Device, CountedDevice],
    moves: _Moves,
    other: int | None,
) -> None:
    stored, number, fresh = turn.stored, turn.number, set[int]()
    counts, is_group = part.counts, stored.scope.group in _BESIDE
    for hashed, (failures, crashes) in part.devices.items():
        old = rows.get((stored.id, hashed), _UNKNOWN)
        failed, crashed = old.failures, old.crashes
        if other is not None and (other_row := rows.get((other, hashed))) is not None:
            # one count over both groups: the row that was written last has all of it
            failed, crashed = max(failed, other_row.failures), max(crashed, other_row.crashes)
        is_first = old.seen != number
        counts.device_minutes += is_first
        if is_weighed := is_first and turn.is_weighed(old):
            fresh.add(hashed)
        if is_group and is_first:
            # an hour's reports that arrive at once are no more exposure than the first of them
            more = part.first[hashed]
            _reach(counts.failures_at_risk, counts.failures_reached, failed, more[0])
            _reach(counts.crashes_at_risk, counts.crashes_reached, crashed, more[1])
        new = rows[stored.id, hashed] = CountedDevice(
            min(failed + failures, _MOST),
            min(crashed + crashes, _MOST),
            number,
            number if failures else old.failed,
            number if crashes else old.crashed,
            number if is_weighed else old.weighed,
        )
        for index, (before, after) in enumerate(zip(old[2:5], new[2:5], strict=True)):
            if before != after:
                moves[stored.id, stored.row_of(after)][index] += 1
                if before != _NEVER:
                    moves[stored.id, stored.row_of(before)][index] -= 1
    counts.add_values(part.values, fresh)


def _move_to_last(
    stored: StoredScope, last: dict[int, int], rows: dict[_Device, CountedDevice], moves: _Moves
) -> None:
    for hashed, version in last.items():
        before = rows.get((stored.id, hashed), _UNKNOWN).seen
        rows[stored.id, hashed] = _UNKNOWN._replace(seen=version)
        if before != version:
            moves[stored.id, version][0] += 1
            if before != _NEVER:
                moves[stored.id, before][0] -= 1


def _reach(at_risk: list[int], reached: list[int], before: int, more: int) -> None:
    for index, level in enumerate(LEVELS):
        if before < level:
            at_risk[index] += 1
            reached[index] += before + more >= level


def _grown(
    before: CountedWindow | None, row: int, moved: list[int], counts: WindowCounts, now_ms: int
) -> CountedWindow:
    old = before or CountedWindow(row, 0, 0, 0, 0, b"")
    grown = merged_counts([old.data])
    grown.merge(counts)
    seen, failed, crashed = moved
    return CountedWindow(
        row,
        old.seen + seen,
        old.failed + failed,
        old.crashed + crashed,
        now_ms,
        encode_counts(grown),
    )
