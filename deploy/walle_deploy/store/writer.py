"""Changes of a transaction, the same on both databases."""

from typing import Final

import msgspec

from walle_deploy.model.releases import VersionFiles
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import AuditHead, SealedEntry, StoredRelease
from walle_deploy.store.schema import Dialect, Execute
from walle_stream.errors import ConflictError

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class WriteTransaction(ReadTransaction):
    """Changes that belong together; they commit if the context ends without an error."""

    def __init__(self, execute: Execute, dialect: Dialect) -> None:
        """Write through an open transaction that holds ``walle_head``."""
        super().__init__(execute, dialect)
        self._is_table_changed = False

    def put_version(self, task: str, version: str, files: VersionFiles) -> bool:
        """Publish a version; return whether it is new.

        Raises:
            ConflictError: It was published with other files.
        """
        text = _encode(files).decode()
        cursor = self._execute(
            "INSERT INTO walle_versions (task, version, published_ms, files) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (task, version) DO NOTHING",
            (task, version, self.now_ms(), text),
        )
        is_new = cursor.rowcount > 0
        if not is_new and self.files(task, version) != files:
            raise ConflictError(
                f"{task}@{version} was published with other files: a version never changes, "
                "tag a new one"
            )
        # reports without a valid receipt only update this row
        self._execute(
            "INSERT INTO walle_unproven VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING", (task, version)
        )
        self._is_table_changed |= is_new
        return is_new

    def put_release(self, release: StoredRelease) -> None:
        """Store a new release (revision 1) or a changed one (the stored revision plus one).

        Raises:
            ConflictError: Another caller made or changed it first.
        """
        before = self.release(release.release_id)
        revision = before.revision if before is not None else 0
        if revision != release.revision - 1:
            raise ConflictError(
                f"release {release.release_id!r}: another person or service changed it meanwhile "
                f"(revision {revision}, expected {release.revision - 1}); see "
                f"'walle release status {release.release_id}', then try again"
            )
        offer = None if release.offer is None else _encode(release.offer).decode()
        changing = (release.revision, int(release.is_open), release.state, offer)
        if before is None:
            self._execute(
                "INSERT INTO walle_releases (revision, is_open, state, offer, release_id, task,"
                " version, created_ms, position) SELECT ?, ?, ?, ?, ?, ?, ?, ?, COUNT(*)"
                " FROM walle_releases",
                (*changing, release.release_id, release.task, release.version, release.created_ms),
            )
        else:
            self._execute(
                "UPDATE walle_releases SET revision = ?, is_open = ?, state = ?, offer = ?"
                " WHERE release_id = ?",
                (*changing, release.release_id),
            )
        old = before.offer if before is not None else None
        self._is_table_changed |= old != release.offer

    def set_stable(self, task: str, version: str) -> None:
        """Set the version of devices outside all releases; empty: they keep their version."""
        self._is_table_changed |= self.stable().get(task) != version
        self._execute(
            "INSERT INTO walle_stable (task, version) VALUES (?, ?)"
            " ON CONFLICT (task) DO UPDATE SET version = excluded.version",
            (task, version),
        )

    def append_audit(self, entry: SealedEntry, previous: AuditHead) -> None:
        """Add the next entry of the audit log.

        Raises:
            ConflictError: ``previous`` is not the log's end.
        """
        head = self.audit_head()
        if previous != head or entry.number != head.number + 1:
            raise ConflictError(
                f"the audit log ends at entry {head.number}, not at {previous.number}: another "
                "process wrote meanwhile; try again"
            )
        self._execute(
            "INSERT INTO walle_audit (number, release_id, entry, hash) VALUES (?, ?, ?, ?)",
            (entry.number, entry.release_id, entry.text, entry.hash),
        )
        self._execute(
            "UPDATE walle_head SET audit_number = ?, audit_hash = ?", (entry.number, entry.hash)
        )

    def take_lease(self, name: str, owner: str, lasting_ms: int) -> bool:
        """Take or prolong a lease by the database's clock; return whether the owner has it.

        A lease that ends later than twice ``lasting_ms`` from now is free: the clock was set back
        since, and the wait could be long. Its former owner notices before its next change, because
        each change asks in its own transaction.

        The owner is unique to a process. ``lasting_ms`` is the same for all callers; 0 gives the
        lease back.
        """
        now = self.now_ms()
        # a later end than any right clock gives comes from a wrong clock
        latest_ms = now + 2 * lasting_ms if lasting_ms else 2**62
        cursor = self._execute(
            "INSERT INTO walle_leases (name, owner, expires_ms) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE"
            " SET owner = excluded.owner, expires_ms = excluded.expires_ms"
            " WHERE walle_leases.owner = excluded.owner OR walle_leases.expires_ms <= ?"
            " OR walle_leases.expires_ms > ?",
            (name, owner, now + lasting_ms, now, latest_ms),
        )
        return cursor.rowcount > 0

    def put_snapshot(self, kind: str, name: str, data: bytes) -> None:
        """Store bytes, at most 64 MiB, under a kind and a name; they replace earlier ones."""
        self._execute(
            "INSERT INTO walle_snapshots (kind, name, taken_ms, data) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (kind, name) DO UPDATE"
            " SET taken_ms = excluded.taken_ms, data = excluded.data",
            (kind, name, self.now_ms(), data),
        )

    def close(self) -> None:
        """Increment the table's generation if the table changed; the commit follows."""
        if self._is_table_changed:
            self._execute("UPDATE walle_head SET generation = generation + 1", ())
