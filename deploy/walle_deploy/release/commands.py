"""Changes to releases by operators and the controller, each one transaction with one audit entry.

A task has one release in progress at a time. Without the devices, the commands cannot know whether
two policies share devices. Two versions watched at once would be compared with each other.
``create(..., supersede=True)`` ends the release in progress.
"""

import json
from collections.abc import Callable
from typing import Final

from msgspec import json as packed

from walle_deploy.model.releases import VersionFiles
from walle_deploy.operators.operator import Operator
from walle_deploy.policy.model import Policy
from walle_deploy.release.audit import AuditEntry, digest, digest_text, record
from walle_deploy.release.events import Advanced, Approved, Paused, Resumed, RolledBack, Superseded
from walle_deploy.release.machine import AnyEvent, Change, advance
from walle_deploy.release.model import Release
from walle_deploy.release.state import ReleaseState, offer_of
from walle_deploy.release.stored_health import judge_stored
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import StoredRelease
from walle_deploy.store.writer import WriteTransaction
from walle_stream.errors import ConflictError, ForbiddenError, RefNotFoundError, ReleaseStateError
from walle_stream.faults import crash_point
from walle_stream.spec.suggestions import instead

_REQUESTS: Final = "requests"

type Guard = Callable[[WriteTransaction], None]
"""A check within the transaction of a change; it raises to refuse the change."""


def _changing_by(event: Callable[[int, str, str], AnyEvent]) -> Callable[..., StoredRelease]:
    def change(
        commands: "ReleaseCommands", release_id: str, why: str = "", revision: int | None = None
    ) -> StoredRelease:
        """Change a release, unless it was changed after ``revision``.

        Raises:
            ConflictError: Another person changed it after ``revision``, or approved it already.
            ForbiddenError: The author of the release tries to approve it.
            RefNotFoundError: There is no release of that name.
            ReleaseStateError: The release's state does not allow the change.
        """
        return commands.apply(
            release_id, lambda look, _: event(look.now_ms(), why, commands.person), revision
        )

    return change


class ReleaseCommands:
    """Commands that change releases in a store; safe in any number of processes at once."""

    def __init__(
        self,
        store: ReleaseStore,
        by: str | Operator,
        request: str = "",
        content_digest: bytes = b"",
        *,
        needs_second: bool = False,
    ) -> None:
        """Work on a store, which the caller closes.

        Args:
            store: Store of the releases.
            by: Person or program that makes the changes, for the audit log.
            request: Id of the one requested change, which is made only once for this id.
            content_digest: Digest of that change; a different change under the same id is refused.
            needs_second: Whether another person must approve a created release before it begins.
        """
        self._store = store
        self._request, self._content_digest = request, content_digest
        self.person = by.person if isinstance(by, Operator) else by
        """Identity of the person, different from all others."""
        self._needs_second = needs_second
        self._who: dict[str, object] = {"by": by}
        if isinstance(by, Operator):
            self._who = {"by": by.name, "role": by.role, "verified": by.is_verified}
            self._who |= {"issuer": by.issuer, "subject": by.subject}

    def publish(self, task: str, version: str, files: VersionFiles) -> None:
        """Make a version known for releases; a repetition changes nothing.

        Raises:
            ConflictError: The version was published with other files.
        """
        with self._store.writing() as transaction:
            if not self._is_done(transaction) and transaction.put_version(task, version, files):
                named = {"task": task, "version": version}
                self._record(transaction, action="publish", **named, digest=digest(files))

    def adopt(self, task: str, version: str, why: str = "") -> None:
        """Set the version that devices already have, for a task that was never released here.

        The version is a published one. Later releases are compared with it.

        Raises:
            ConflictError: The task has a stable version, or a release, which would fall back to
                the version that was stable when it began.
            RefNotFoundError: The version was not published.
            ForbiddenError: Another person would have to approve it.
        """
        if self._needs_second:
            raise ForbiddenError(
                "adopt gives devices a version that no other person approved, and "
                "spec.operators.secondPerson asks for that: create a release"
            )
        with self._store.writing() as transaction:
            if self._is_done(transaction):
                return
            if transaction.stable().get(task):
                raise ConflictError(f"{task} already has a stable version: create a release")
            for stored in transaction.releases(task):
                if stored.is_open or stored.is_offered:
                    raise ConflictError(
                        f"release {stored.release_id!r} of {task}@{stored.version} came first: "
                        "roll it back, or let it end, then adopt"
                    )
            _check_published(transaction, task, version)
            transaction.set_stable(task, version)
            self._record(
                transaction, action="adopt", why=why, task=task, version=version, stable=version
            )

    def create(self, release: Release, why: str = "", *, supersede: bool = False) -> StoredRelease:
        """Begin a release, which the controller then drives.

        ``supersede`` ends the release of the task that is in progress, if any.

        Raises:
            ConflictError: The name is used already, or the task has a release in progress.
            RefNotFoundError: The version was not published.
        """
        name, spec = release.metadata.name, release.spec
        with self._store.writing() as transaction:
            if self._is_done(transaction):
                return find_release(transaction, name)
            if transaction.release(name) is not None:
                raise ConflictError(
                    f"a release {name!r} exists already, and each name is used only once: change "
                    "metadata.name"
                )
            _check_published(transaction, spec.task, spec.version)
            for other in transaction.releases(spec.task, only_open=True):
                if not supersede:
                    raise ConflictError(
                        f"release {other.release_id!r} of {spec.task}@{other.version} is in "
                        "progress: wait for its end, roll it back, or create with --supersede"
                    )
                ended = Superseded(transaction.now_ms(), why=f"by release {name!r}")
                self._apply(transaction, other, ended)
            state = ReleaseState(
                definition=release.model_dump(mode="json", by_alias=True, exclude_none=True),
                previous=transaction.stable().get(spec.task, ""),
                compared=_still_offered(transaction, spec.task),
                created_ms=transaction.now_ms(),
                reason=why,
                author=self.person if self._needs_second else "",
            )
            stored = self._put(transaction, name, 1, Change(state, "create", why))
            crash_point("change.before")
        crash_point("change.after")
        return stored

    pause = _changing_by(lambda now, why, _: Paused(now, why))
    """Stop the progress; devices keep what they have, and the gates go on."""

    resume = _changing_by(lambda now, why, _: Resumed(now, why))

    approve = _changing_by(lambda now, why, person: Approved(now, person, why))
    """Let a release begin that another person created."""

    roll_back = _changing_by(lambda now, why, _: RolledBack(now, why))
    """Take the version back: devices get the stable version with their next request. A done release
    can be taken back, too, while it is the newest."""

    def advance(self, release_id: str, why: str = "", revision: int | None = None) -> StoredRelease:
        """Begin the next step now, whatever the current step waits for: time, devices or schedule.

        If a gate says stop about the last reports, the release is stopped instead. The command is
        refused if the release was changed after ``revision``.

        Raises:
            ConflictError: Another person changed the release after ``revision``.
            RefNotFoundError: There is no release of that name.
            ReleaseStateError: The release is paused or ended, or its simulation runs.
        """

        def make(transaction: ReadTransaction, stored: StoredRelease) -> Advanced:
            judgement = judge_stored(transaction, read_state(stored))
            if judgement is not None and judgement.outcome == "stop":
                return Advanced(transaction.now_ms(), "stop", judgement.why)
            return Advanced(transaction.now_ms(), why=why)

        return self.apply(release_id, make, revision)

    def apply(
        self,
        release_id: str,
        make_event: Callable[[ReadTransaction, StoredRelease], AnyEvent],
        revision: int | None = None,
        guard: Guard | None = None,
    ) -> StoredRelease:
        """Apply an event to a release in its own transaction, and return the changed release.

        The transaction includes ``guard`` and ``make_event``. The change is refused if the release
        was changed after ``revision``.

        Raises:
            ConflictError: Another person changed the release after ``revision``.
            RefNotFoundError: There is no release of that name.
        """
        with self._store.writing() as transaction:
            if guard is not None:
                guard(transaction)
            stored = find_release(transaction, release_id)
            if self._is_done(transaction):
                return stored
            if revision is not None and stored.revision != revision:
                raise ConflictError(
                    f"release {release_id!r} is at revision {stored.revision}, you saw {revision}: "
                    f"see 'walle release status {release_id}', then try again"
                )
            changed = self._apply(transaction, stored, make_event(transaction, stored))
            crash_point("change.before")
        crash_point("change.after")
        return changed

    def _is_done(self, transaction: WriteTransaction) -> bool:
        """Return whether the request was done before and its answer lost; if not, note it as done.

        Raises:
            ConflictError: The request's id was used for another change.
        """
        if not self._request:
            return False
        name = digest_text(self._request)
        known = transaction.snapshot(_REQUESTS, name)
        if known is None:
            # the note is kept only if this transaction commits
            transaction.put_snapshot(_REQUESTS, name, self._content_digest)
        elif known != self._content_digest:
            raise ConflictError(
                f"the request id {self._request!r} was used for another change, so nothing was "
                "done now: give each change its own id"
            )
        return known is not None

    def _apply(
        self, transaction: WriteTransaction, stored: StoredRelease, event: AnyEvent
    ) -> StoredRelease:
        state = read_state(stored)
        if isinstance(event, RolledBack) and state.stage == "done":
            self._refuse_late(transaction, stored, state)
        change = advance(state, event)
        if change is None:
            return stored
        changed = self._put(transaction, stored.release_id, stored.revision + 1, change)
        if change.state.stage == "done":
            self._supersede_done(transaction, changed)
        return changed

    def _refuse_late(
        self, transaction: WriteTransaction, stored: StoredRelease, state: ReleaseState
    ) -> None:
        newer = transaction.releases(stored.task, only_open=True)
        is_stable = transaction.stable().get(stored.task) == stored.version
        if newer or not (is_stable or state.is_offered):
            other = f"release {newer[0].release_id!r}" if newer else "a later release"
            raise ReleaseStateError(
                f"release {stored.release_id!r} is done, and {other} came after it: roll back "
                "the later one"
            )

    def _supersede_done(self, transaction: WriteTransaction, newest: StoredRelease) -> None:
        """End the done releases whose devices the newest release has taken over for good."""
        policy = read_state(newest).release.spec.policy
        for other in transaction.releases(newest.task):
            state = read_state(other)
            is_covered = policy == Policy() or state.release.spec.policy == policy
            if other.release_id != newest.release_id and state.stage == "done" and is_covered:
                why = f"by release {newest.release_id!r}"
                self._apply(transaction, other, Superseded(transaction.now_ms(), why))

    def _put(
        self, transaction: WriteTransaction, name: str, revision: int, change: Change
    ) -> StoredRelease:
        state, spec = change.state, change.state.release.spec
        stored = StoredRelease(
            release_id=name,
            task=spec.task,
            version=spec.version,
            revision=revision,
            is_open=state.is_open,
            created_ms=state.created_ms,
            state=packed.encode(state).decode(),
            offer=offer_of(state),
        )
        transaction.put_release(stored)
        if change.stable is not None:
            transaction.set_stable(spec.task, change.stable)
        self._record(
            transaction,
            action=change.action,
            why=change.why,
            release=name,
            task=spec.task,
            version=spec.version,
            revision=revision,
            stage=state.stage,
            percent=state.percent,
            stable=change.stable,
            digest=digest(stored),
        )
        return stored

    def _record(self, transaction: WriteTransaction, **fields: object) -> None:
        values = {**self._who, "request": self._request, **fields}
        record(transaction, AuditEntry(number=0, at_ms=0, **values))  # type: ignore[arg-type]


def _still_offered(transaction: ReadTransaction, task: str) -> str:
    for stored in reversed(transaction.releases(task)):
        state = read_state(stored)
        if state.stage == "done" and state.is_offered:
            return stored.version
    return ""


def read_state(stored: StoredRelease) -> ReleaseState:
    """Return the state of a stored release."""
    return packed.decode(stored.state, type=ReleaseState)


def find_release(transaction: ReadTransaction, release_id: str) -> StoredRelease:
    """Return a release.

    Raises:
        RefNotFoundError: There is no release of that name; the message suggests similar names.
    """
    stored = transaction.release(release_id)
    if stored is None:
        names = [release.release_id for release in transaction.releases()]
        raise RefNotFoundError(
            f"there is no release {json.dumps(release_id)}{instead(release_id, names)}"
        )
    return stored


def _check_published(transaction: ReadTransaction, task: str, version: str) -> None:
    versions = transaction.versions(task)
    if version not in versions:
        raise RefNotFoundError(
            f"{task}@{version} was not published{instead(version, list(versions))}"
        )
