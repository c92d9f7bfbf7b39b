"""Checks that the audit log follows the state machine, for every release."""

from collections.abc import Iterator, Sequence

from walle_deploy.release.audit import AuditEntry, read_entry
from walle_deploy.release.commands import read_state
from walle_deploy.release.state import OPEN
from walle_deploy.release.verification import verify
from walle_deploy.store.reader import ReadTransaction
from walle_stream.errors import IntegrityError

_ORDER = ("created", "simulation", "beta", "gray", "full", "done")
_ENDS = {
    "rollback": {"rolled_back"},
    "stop": {"stopped"},
    "supersede": {"superseded"},
    "finish": {"done"},
}


def wrong_history(transaction: ReadTransaction) -> Iterator[str]:
    """Check the log against itself, the store, and the state machine.

    Yields:
        Findings, one line each.
    """
    try:
        verify(transaction)
    except IntegrityError as error:
        yield str(error)
        return
    entries = [read_entry(each) for each in transaction.audit()]
    yield from two_at_once(entries)
    for stored in transaction.releases():
        own = [each for each in entries if each.release == stored.release_id]
        yield from wrong_path(own)
        state = read_state(stored)
        last = own[-1] if own else None
        if last is None or (last.stage, last.revision) != (state.stage, stored.revision):
            yield f"release {stored.release_id}: its last entry differs from its state"
        if (state.is_open or state.is_offered) != (stored.is_open or stored.is_offered):
            yield f"release {stored.release_id}: its row differs from its state"


def two_at_once(entries: Sequence[AuditEntry]) -> Iterator[str]:
    """Find two open releases of one task.

    Args:
        entries: Entries of all releases, in order.

    Yields:
        Findings, one line each.
    """
    opened: dict[str, set[str]] = {}
    for entry in entries:
        if not entry.release:
            continue
        names = opened.setdefault(entry.task, set())
        if entry.stage in OPEN:
            names.add(entry.release)
        else:
            names.discard(entry.release)
        if len(names) > 1:
            yield f"entry {entry.number}: {sorted(names)} of {entry.task} are open at once"


def wrong_path(entries: Sequence[AuditEntry]) -> Iterator[str]:
    """Check the entries of one release.

    Args:
        entries: Its entries, in order.

    Yields:
        Each step that no release may take.
    """
    before: AuditEntry | None = None
    for entry in entries:
        problem = _wrong_step(before, entry)
        if problem:
            yield f"release {entry.release}, entry {entry.number}: {problem}"
        before = entry


def _wrong_step(before: AuditEntry | None, entry: AuditEntry) -> str:
    if before is None:
        is_first = (entry.action, entry.stage, entry.revision) == ("create", "created", 1)
        return "" if is_first else f"it begins with {entry.action}"
    before_it, after = f"{before.stage} {before.percent:g} %", f"{entry.stage} {entry.percent:g} %"
    step = f"{entry.action} from {before_it} to {after}"
    if entry.revision != before.revision + 1:
        return f"revision {entry.revision} follows {before.revision}"
    if before.stage not in OPEN and not (
        before.stage == "done" and entry.action in {"rollback", "supersede"}
    ):
        return f"it had ended: {step}"
    if entry.action in {"pause", "resume", "simulated"}:
        is_right = (entry.stage, entry.percent) == (before.stage, before.percent)
    elif entry.action in _ENDS:
        is_right = entry.stage in _ENDS[entry.action] and (
            entry.action != "finish" or before.stage == "full"
        )
    elif entry.action in {"begin", "advance"} and entry.stage in _ORDER:
        later = _ORDER.index(entry.stage) - _ORDER.index(before.stage)
        grows = entry.percent > before.percent
        is_right = later > 0 or (later == 0 and grows)
        if entry.stage == "done":
            # the controller's own action is ``finish``
            is_right = entry.action == "advance" and before.stage == "full"
    else:
        is_right = False
    return "" if is_right else step
