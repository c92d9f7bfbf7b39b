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
    """Changes that happen together: kept when the context ends without an error."""

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
        self._is_table_changed |= is_new
        return is_new

    def put_release(self, release: StoredRelease) -> None:
        """Keep a release that was made (revision 1) or changed (one more than what is kept).

        Raises:
            ConflictError: Somebody else made or changed it first.
        """
        before = self.release(release.release_id)
        revision = before.revision if before is not None else 0
        if revision != release.revision - 1:
            raise ConflictError(
                f"release {release.release_id!r}: somebody else changed it meanwhile "
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
        """Say which version devices have that no release takes in; empty: what they have."""
        self._is_table_changed |= self.stable().get(task) != version
        self._execute(
            "INSERT INTO walle_stable (task, version) VALUES (?, ?)"
            " ON CONFLICT (task) DO UPDATE SET version = excluded.version",
            (task, version),
        )

    def append_audit(self, entry: SealedEntry, previous: AuditHead) -> None:
        """Add the next entry of the audit log.

        Raises:
            ConflictError: That is not the log's end.
        """
        head = self.audit_head()
        if previous != head or entry.number != head.number + 1:
            raise ConflictError(
                f"the audit log ends at entry {head.number}, not at {previous.number}: somebody "
                "else wrote meanwhile; try again"
            )
        self._execute(
            "INSERT INTO walle_audit (number, release_id, entry, hash) VALUES (?, ?, ?, ?)",
            (entry.number, entry.release_id, entry.text, entry.hash),
        )
        self._execute(
            "UPDATE walle_head SET audit_number = ?, audit_hash = ?", (entry.number, entry.hash)
        )

    def take_lease(self, name: str, owner: str, lasting_ms: int) -> bool:
        """Take a lease, or prolong one's own, by the database's clock; return whether it is got.

        One that ends later than twice ``lasting_ms`` from now is free: the clock was set back since
        it was taken, and nobody is to wait for as long as it had been wrong. Whoever had it finds
        out before his next change, as each one is made in a transaction that asks.

        The owner is unique to a process. ``lasting_ms`` is the same for all who ask; 0 gives it
        back.
        """
        now = self.now_ms()
        # one that ends later than any clock can have given was taken by a clock that was wrong
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
        """Keep bytes, at most 64 MiB, under a kind and a name, in place of those from before."""
        self._execute(
            "INSERT INTO walle_snapshots (kind, name, taken_ms, data) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (kind, name) DO UPDATE"
            " SET taken_ms = excluded.taken_ms, data = excluded.data",
            (kind, name, self.now_ms(), data),
        )

    def close(self) -> None:
        """Give the table a new generation where it changed; the commit follows."""
        if self._is_table_changed:
            self._execute("UPDATE walle_head SET generation = generation + 1", ())
