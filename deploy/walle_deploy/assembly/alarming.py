"""Alarms of a release service, about offered versions and about releases.

A lease in the store decides which worker looks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from walle_deploy.model.releases import ActiveRelease
from walle_deploy.monitoring.alarms import AlarmBoard, AlarmMessage
from walle_deploy.monitoring.definition import Alarms
from walle_deploy.monitoring.watch import FleetView, WatchOptions, watching
from walle_deploy.release.audit import AuditEntry, read_entry
from walle_deploy.release.controller import CONTROLLER
from walle_deploy.store.adapters import StoredRows
from walle_deploy.store.port import ReleaseStore
from walle_stream.spec.single import load_single

_AUDIT_KEY: Final = "alarms/audit"
_REPORTED_ACTIONS: Final = frozenset({"rollback", "stop", "pause"})
_ALL: Final = 99.0  # percent: the rest is a hold-out, which may contain no device


class OfferedVersions:
    """The versions that devices should have now, without a look at policies.

    One thread; blocks on the store, which may raise ServiceUnreachableError.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Start without a look at the store."""
        self._store = store
        self._versions: frozenset[tuple[str, str]] = frozenset()
        self._generation = -1

    def look(self) -> frozenset[tuple[str, str]]:
        """Return the stable versions and those that releases offer."""
        with self._store.reading() as transaction:
            generation = transaction.generation()
            if generation == self._generation:
                return self._versions
            releases, stable = transaction.releases(), transaction.stable()
        offers = [
            release.offer
            for release in releases
            if release.offer is not None and release.is_offered
        ]
        # a release for all devices replaces its task's stable version
        taken = {offer.task for offer in offers if _is_for_all(offer)}
        kept = {pair for pair in stable.items() if pair[1] and pair[0] not in taken}
        self._versions = frozenset(kept | {(offer.task, offer.version) for offer in offers})
        self._generation = generation
        return self._versions

    def has(self, task: str, version: str) -> bool:
        """Return whether the last look found a version."""
        return (task, version) in self._versions


class ReleaseNews:
    """Messages about the controller's own actions on releases; their ids never change.

    Actions before the first look make no message. One thread; blocks on the store, which may raise
    ServiceUnreachableError.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Start without a look at the store."""
        self._store = store
        self._rows = StoredRows(store)
        self._last_number = 0
        """Number of the last log entry that was read."""

    def look(self) -> list[AlarmMessage]:
        """Return new messages."""
        row = self._rows.read(_AUDIT_KEY)
        with self._store.reading() as transaction:
            head = transaction.audit_head().number
            after = max(int(row or 0), self._last_number)
            sealed = [] if row is None else transaction.audit(after=after)
        entries = (read_entry(entry) for entry in sealed)
        messages = [
            _message(entry)
            for entry in entries
            if entry.by == CONTROLLER and entry.release and entry.action in _REPORTED_ACTIONS
        ]
        self._last_number = head
        if row is None:
            self.keep()
        return messages

    def keep(self) -> None:
        """Remember that all messages were told."""
        self._rows.save(_AUDIT_KEY, b"%d" % self._last_number)


@contextmanager
def alarming(store: ReleaseStore, file: Path) -> Iterator[None]:
    """Watch alarms for the block's duration; blocks on the store.

    Raises:
        SpecFileError: The file is not valid.
    """
    spec, owner = load_single(file, Alarms).spec, uuid4().hex
    offered = OfferedVersions(store)
    board = AlarmBoard(spec.rules)

    def wanted() -> frozenset[tuple[str, str]]:
        # versions of firing alarms are included until these end
        return offered.look() | {(task, version) for _, task, version in board.firing}

    def leads() -> bool:
        with store.writing() as transaction:
            # the lease lasts for three looks
            return transaction.take_lease("alarms", owner, 3 * spec.every)

    options = WatchOptions(StoredRows(store), offered.has, leads, ReleaseNews(store))
    with watching(FleetView(store, wanted), spec, board, options):
        yield


def _is_for_all(offer: ActiveRelease) -> bool:
    everybody = offer.stage == "full" or (offer.stage == "gray" and offer.percent >= _ALL)
    return everybody and not offer.policy


def _message(entry: AuditEntry) -> AlarmMessage:
    name = f"release-{entry.release}-{entry.revision}"
    verb = {"rollback": "was rolled back", "stop": "was stopped", "pause": "was paused"}
    return AlarmMessage(
        id=name,
        alarm=name,
        state="firing",
        rule="release",
        task=entry.task,
        version=entry.version,
        measure="release",
        since_ms=entry.at_ms,
        at_ms=entry.at_ms,
        text=f"release {entry.release} of {entry.task}@{entry.version} {verb[entry.action]} "
        f"automatically: {entry.why}",
    )
