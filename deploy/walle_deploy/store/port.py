"""The port of release stores.

Whatever belongs together is written in one ``WriteTransaction``: all of it is there
afterwards, or nothing, through ``kill -9`` of the process and of the database. Writers come
one after the other; readers see one state of everything and wait for nobody. A store may be
used by several threads, which then take turns, and by any number of processes.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from walle_deploy.model.releases import ReleaseTable, VersionFiles
from walle_deploy.store.rows import (
    END,
    AuditHead,
    CountedDevice,
    CountedWindow,
    Scope,
    SealedEntry,
    StoredRelease,
    StoredScope,
)

LEADER: Final = "controller"
"""Name of the lease of the one process that takes releases on."""


class ReadTransaction(Protocol):
    """One state of everything that the store keeps. Every method may block for I/O."""

    def now_ms(self) -> int:
        """Return the database's clock: one for all processes, epoch milliseconds."""
        ...

    def generation(self) -> int:
        """Return a number that grows whenever ``table`` gives something else."""
        ...

    def table(self, known: Mapping[str, VersionFiles] | None = None) -> ReleaseTable:
        """Return all that a check of a device needs.

        Args:
            known: Files by ``TASK@VERSION`` of a table before. They are not read again: a
                published version never changes, and one may have files of very many devices.
        """
        ...

    def tasks(self) -> Sequence[str]:
        """Return the tasks of which a version was published, sorted."""
        ...

    def versions(self, task: str) -> Mapping[str, VersionFiles]:
        """Return the published versions of a task, the oldest first.

        Args:
            task: ``SCENARIO/TASK``.
        """
        ...

    def files(self, task: str, version: str) -> VersionFiles | None:
        """Return the files of a published version; None where there is none.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
        """
        ...

    def has_version(self, task: str, version: str) -> bool:
        """Return whether a version was published; quick, whatever files it has.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
        """
        ...

    def release(self, release_id: str) -> StoredRelease | None:
        """Return a release, or None where there is none of that name.

        Args:
            release_id: Its name.
        """
        ...

    def releases(self, task: str = "", *, only_open: bool = False) -> Sequence[StoredRelease]:
        """Return releases, the oldest first.

        Args:
            task: Only this task's; empty for all.
            only_open: Only those for which something is still to be done.
        """
        ...

    def stable(self) -> Mapping[str, str]:
        """Return by task the version of devices that no release takes in; "" is none."""
        ...

    def audit_head(self) -> AuditHead:
        """Return the end of the audit log, as it is kept beside the entries."""
        ...

    def audit(self, release_id: str = "", after: int = 0) -> Sequence[SealedEntry]:
        """Return entries of the audit log, the oldest first.

        Args:
            release_id: Only this release's; empty for all.
            after: Only those with a greater number.
        """
        ...

    def snapshots(self, kind: str, prefix: str = "") -> Mapping[str, bytes]:
        """Return by name what was put with ``put_snapshot``.

        Args:
            kind: Of which kind.
            prefix: Only names that begin with it.
        """
        ...

    def named_snapshots(self, kind: str, names: Collection[str]) -> Mapping[str, bytes]:
        """Return those of these names that are there; quick, whatever else there is.

        Args:
            kind: Of which kind.
            names: Any number.
        """
        ...

    def device_counts(self, task: str) -> Mapping[str, int]:
        """Return by version how many devices reported it last; each is counted once.

        Args:
            task: ``SCENARIO/TASK``.
        """
        ...

    def lease_ends_ms(self, name: str) -> int:
        """Return when a lease ends, or ended, by the database's clock; 0 where nobody had it.

        Args:
            name: What for.
        """
        ...

    def scopes(self, wanted: Collection[Scope]) -> Mapping[Scope, StoredScope]:
        """Return those of some scopes that something was counted for.

        Args:
            wanted: Any number.
        """
        ...

    def windows(
        self, scope: int, first: int, after: int = -1, end: int = END
    ) -> Sequence[CountedWindow]:
        """Return the windows of a scope in order.

        Args:
            scope: Id of it.
            first: Number of the first one.
            after: Up to here ``data`` is left empty: whoever asks knows it.
            end: The last one is before it.
        """
        ...


class CountTransaction(ReadTransaction, Protocol):
    """Counting of reports: one such transaction at a time, over all processes.

    Each method is about any number of rows, and asks the database once.
    """

    def marks(self, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """Return the number of the last frame that was counted of each partition.

        Args:
            partitions: As (incarnation, partition); of those of which none was nothing comes back.
        """
        ...

    def put_marks(self, marks: Mapping[tuple[str, int], int], now_ms: int) -> None:
        """Keep the numbers of last frames."""
        ...

    def trim_marks(self, incarnation: str, most: int) -> None:
        """Keep the marks of ``most`` partitions, those that moved last, and delete the others."""
        ...

    def published(self, versions: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
        """Return those of some versions that were published.

        Args:
            versions: As (task, version).
        """
        ...

    def make_scope(self, scope: Scope, minutes_from: int, hours_from: int) -> StoredScope:
        """Begin to count for a scope that is not there.

        Args:
            scope: Which.
            minutes_from: See ``StoredScope``.
            hours_from: The same.
        """
        ...

    def counted(
        self, devices: Collection[tuple[int, int]]
    ) -> Mapping[tuple[int, int], CountedDevice]:
        """Return what is known of devices.

        Args:
            devices: As (id of the scope, 64 bits of the device's hash, signed).
        """
        ...

    def put_counted(self, devices: Mapping[tuple[int, int], CountedDevice]) -> None:
        """Keep what is known of devices, in place of what was before."""
        ...

    def window(self, scope: int, number: int) -> CountedWindow | None:
        """Return one window; None where there is none."""
        ...

    def put_window(self, scope: int, window: CountedWindow) -> None:
        """Keep a window, in place of the one of its number."""
        ...

    def move_devices(self, changes: Mapping[tuple[int, int], tuple[int, int, int]]) -> None:
        """Add to how many devices windows have.

        Args:
            changes: To ``seen``, ``failed`` and ``crashed``, by (id of the scope, number).
        """
        ...

    def add_unproven(self, reports: Mapping[int, tuple[int, int]]) -> None:
        """Add to ``bare`` and ``wrong``, by the id of the scope."""
        ...

    def due_scope(self, minutes_from: int) -> StoredScope | None:
        """Return the scope whose ``minutes_from`` is the least, if it is below that."""
        ...

    def put_edges(self, scope: StoredScope) -> None:
        """Keep ``minutes_from`` and ``hours_from`` of a scope."""
        ...

    def drop_windows(self, scope: int, first: int, end: int) -> None:
        """Keep the windows from ``first`` to before ``end`` no longer."""
        ...

    def drop_scope(self, scope: StoredScope, devices: int) -> None:
        """Forget a scope: at once for whoever looks for it, its rows in steps.

        Args:
            scope: Which. While rows are left, it is the one that is due.
            devices: Most that are deleted in this step.
        """
        ...


class WriteTransaction(ReadTransaction, Protocol):
    """Changes that happen together; they are there when the context ends without an error."""

    def put_version(self, task: str, version: str, files: VersionFiles) -> None:
        """Publish a version; the same once more is nothing new.

        Args:
            task: ``SCENARIO/TASK``.
            version: Name of it.
            files: Where its files are.

        Raises:
            ConflictError: It was published with other files.
        """
        ...

    def put_release(self, release: StoredRelease) -> None:
        """Keep a release that was made or changed.

        Args:
            release: With revision 1 where it is new, else one more than what is kept.

        Raises:
            ConflictError: Somebody else made or changed it first.
        """
        ...

    def set_stable(self, task: str, version: str) -> None:
        """Say which version devices have that no release takes in.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it; empty: none, devices keep what they have.
        """
        ...

    def append_audit(self, entry: SealedEntry, previous: AuditHead) -> None:
        """Add the next entry of the audit log.

        Args:
            entry: With the number after the head's.
            previous: The head that it was sealed onto.

        Raises:
            ConflictError: That is not the log's end.
        """
        ...

    def take_lease(self, name: str, owner: str, lasting_ms: int) -> bool:
        """Take a lease, or prolong one's own, by the database's clock.

        One that ends later than twice ``lasting_ms`` from now is free: the clock was set back
        since it was taken, and nobody is to wait for as long as it had been wrong. Whoever had
        it finds out before his next change, as each one is made in a transaction that asks.

        Args:
            name: What for.
            owner: Who; must be unique to a process.
            lasting_ms: From now on, the same for all who ask; 0 gives it back.

        Returns:
            Whether it is the owner's: False while it is somebody else's.
        """
        ...

    def put_snapshot(self, kind: str, name: str, data: bytes) -> None:
        """Keep bytes under a name, in place of those from before.

        Args:
            kind: What they are.
            name: Whose they are.
            data: At most 64 MiB.
        """
        ...


class ReleaseStore(Protocol):
    """Transactions on one database."""

    def writing(self) -> AbstractContextManager[WriteTransaction]:
        """Begin a transaction that is kept when its context ends without an error.

        Raises:
            ServiceUnreachableError: The database does not answer, or is busy for long.
        """
        ...

    def counting(self) -> AbstractContextManager[CountTransaction]:
        """Begin a transaction of reports, kept when its context ends without an error.

        Changes of releases wait for none where the database can have several writers.

        Raises:
            ServiceUnreachableError: The database does not answer, or is busy for long.
        """
        ...

    def reading(self) -> AbstractContextManager[ReadTransaction]:
        """Begin a look at one state of everything.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        ...

    def close(self) -> None:
        """Close it; a second call does nothing."""
        ...
