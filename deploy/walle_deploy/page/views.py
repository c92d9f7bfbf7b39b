"""Contents of the pages: all releases, one release with its evidence, and its stop form."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import astuple

from walle_deploy.page.coverage import coverage_chart
from walle_deploy.page.templates import Html, filled
from walle_deploy.release.audit import read_entry
from walle_deploy.release.commands import find_release, read_state
from walle_deploy.release.progress import describe
from walle_deploy.release.rates import Rate, share_of
from walle_deploy.release.stored_health import read_memory
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.receipt_keys import read_open_mode
from walle_stream.errors import ConflictError, ForbiddenError, ReleaseStateError

STOPS: Final = ("rollback", "pause")

_ROWS, _ENTRIES, _LAST, _KINDS = 500, 200, 20, 20


def _releases(look: ReadTransaction, _: str, __: Mapping[str, str]) -> Html:
    # open releases first, then the newest
    every = sorted(look.releases(), key=lambda release: release.is_open)[::-1]
    tasks = {release.task for release in every[:_ROWS]}
    devices = {task: look.device_counts(task) for task in tasks}
    open_mode = read_open_mode(look)
    rows = [
        {
            "of": release,
            "state": read_state(release),
            "devices": devices[release.task].get(release.version, 0),
            "unproven": "" if open_mode.includes(release.release_id, release.created_ms) else None,
        }
        for release in every[:_ROWS]
    ]
    entries = map(read_entry, look.audit(after=look.audit_head().number - _LAST))
    return filled(
        "releases",
        count=len(every),
        warning="" if open_mode.until_ms >= look.now_ms() else None,
        left=max(0, len(every) - _ROWS) or None,
        rows=rows,
        none=None if rows else "",
        entries=list(entries)[::-1],
    )


def _release(look: ReadTransaction, role: str, query: Mapping[str, str]) -> Html:
    stored = find_release(look, query["name"])
    progress = describe(look, stored)
    entries = [read_entry(entry) for entry in look.audit(stored.release_id)]
    may_stop = role != "viewer" and not set(STOPS).isdisjoint(progress.can)
    return filled(
        "release",
        of=progress,
        state=read_state(stored),
        stop=progress if may_stop else None,
        warning=progress if progress.is_unauthenticated else None,
        waits=" and ".join(progress.waits_for),
        devices=sorted(progress.known_devices.items()),
        reports=[(version, at or None) for version, at in progress.last_reports_ms.items()],
        chart=coverage_chart(look, progress, entries),
        gates=list(progress.gates),
        unseen=None if progress.gates else "",
        kinds=list(_kinds(look, stored.release_id)),
        entries=entries[: -_ENTRIES - 1 : -1],
    )


def _stop(look: ReadTransaction, role: str, query: Mapping[str, str]) -> Html:
    if role == "viewer":
        raise ForbiddenError("the role viewer may not change anything")
    progress = describe(look, find_release(look, query["name"]))
    if query.get("revision") != str(progress.revision):
        raise ConflictError(
            f"release {progress.release!r} was changed since your page showed it, and is at "
            f"revision {progress.revision}: open it again"
        )
    if set(STOPS).isdisjoint(progress.can):
        raise ReleaseStateError(f"release {progress.release!r} has ended: there is nothing to stop")
    ways = {f"can_{way}": progress if way in progress.can else None for way in STOPS}
    return filled("stop", of=progress, **ways)


def _kinds(look: ReadTransaction, name: str) -> Iterator[dict[str, Any]]:
    """Yield both groups' shares of failed runs, in total and by class, the most frequent first."""
    health = read_memory(look, name).health
    if health is None:
        return
    both = health.new.release, health.control.release
    every = {kind for group in both for kind in group.failure_classes}
    counts = {kind: [group.failure_classes.get(kind, 0) for group in both] for kind in every}
    often = sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))[:_KINDS]
    rows = [("all failed runs", [group.failures for group in both]), *often]
    runs = [group.runs for group in both]
    rates = {kind: list(map(share_of, failures, runs)) for kind, failures in rows}
    most = max((rate.high for pair in rates.values() for rate in pair if rate), default=1) or 1
    for kind, pair in rates.items():
        bars = tuple(rate and Rate(*(at / most for at in astuple(rate))) for rate in pair)
        yield {"kind": kind, "rates": pair, "bars": [bars]}


PAGES: Final[dict[str, Callable[[ReadTransaction, str, Mapping[str, str]], Html]]] = {
    "/": _releases,
    "/releases/{name}": _release,
    "/releases/{name}/stop": _stop,
}
"""Page functions by path; each gets the store, an operator's role and the parameters."""
