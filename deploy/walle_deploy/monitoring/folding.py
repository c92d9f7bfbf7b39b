"""Folding keeps the store small: old windows become hours, then one; silent scopes are dropped.

The process that counts reports does this in small steps.
"""

from typing import Final

from walle_deploy.monitoring.counts import encode_counts, merged_counts
from walle_deploy.store.counter import CountTransaction
from walle_deploy.store.rows import END, CountedWindow, StoredScope

_HOUR: Final = 60
_MINUTES_KEPT: Final = 26 * _HOUR
"""Age in minutes up to which a window of one minute is kept; then it joins an hour."""
_HOURS_KEPT: Final = 30 * 24 * _HOUR
"""Age in minutes up to which hours are kept; then they become one. A scope that was silent for
this long is dropped."""
NEVER_FOLDED: Final = (END, END)
"""The same for a scope whose windows are not times."""


def kept_from(number: int) -> tuple[int, int]:
    """Return the first window that is kept as a minute, and the first that is kept in an hour."""
    return _hour_of(number - _MINUTES_KEPT), _hour_of(number - _HOURS_KEPT)


def fold_step(transaction: CountTransaction, number: int) -> bool:
    """Do one small part of the folding, and return whether more may be left."""
    minutes_from, hours_from = kept_from(number)
    scope = transaction.due_scope(minutes_from)
    if scope is None:
        return False
    numbers = [window.number for window in transaction.windows(scope.id, 0, END)]
    if not scope.scope.task or max(numbers, default=0) < hours_from:
        transaction.drop_scope(scope, 1_000)
        return True
    # older windows that are still minutes become hours first
    hours_from = min(hours_from, scope.minutes_from)
    hours = [number for number in numbers if 0 < number < hours_from]
    if hours:
        hours_from = hours[0] + _HOUR
        _fold(transaction, scope, hours[0], hours_from, 0)
    minutes = [number for number in numbers if scope.minutes_from <= number < minutes_from]
    if minutes:
        hour = _hour_of(minutes[0])
        minutes_from = hour + _HOUR
        _fold(transaction, scope, hour, minutes_from, hour)
    hours_from = max(hours_from, scope.hours_from)
    transaction.put_edges(scope._replace(minutes_from=minutes_from, hours_from=hours_from))
    return True


def _fold(
    transaction: CountTransaction, scope: StoredScope, first: int, end: int, into: int
) -> None:
    rows = transaction.windows(scope.id, first, end=end)
    if into < first:
        rows = [*transaction.windows(scope.id, into, end=into + 1), *rows]
    transaction.drop_windows(scope.id, first, end)
    transaction.put_window(
        scope.id,
        CountedWindow(
            into,
            sum(row.seen for row in rows),
            sum(row.failed for row in rows),
            sum(row.crashed for row in rows),
            rows[-1].last_ms,
            encode_counts(merged_counts(row.data for row in rows)),
        ),
    )


def _hour_of(number: int) -> int:
    return number - number % _HOUR
