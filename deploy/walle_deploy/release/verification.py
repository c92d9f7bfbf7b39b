"""Verification of the audit log, and comparison of the log with the store."""

from collections.abc import Mapping, Sequence
from typing import Final

from walle_deploy.release.audit import broken, digest, digest_text, read_entry
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import AuditHead, SealedEntry
from walle_stream.errors import IntegrityError

_START: Final = AuditHead()


type Kept = Mapping[str, Mapping[str, str]]
"""Digests and stable versions in a store that log entries mention, by kind and name."""


def kept_by(transaction: ReadTransaction) -> Kept:
    """Return digests of releases (oldest first) and versions, and the stable versions."""
    return {
        "release": {release.release_id: digest(release) for release in transaction.releases()},
        "version": {
            f"{task}@{version}": digest(files)
            for task in transaction.tasks()
            for version, files in transaction.versions(task).items()
        },
        "stable version of": transaction.stable(),
    }


def verify(transaction: ReadTransaction) -> AuditHead:
    """Check the whole log, compare it with the store, and return the log's head.

    Raises:
        IntegrityError: The log or the store was altered; the message names the first place.
    """
    head = transaction.audit_head()
    compare(verify_chain(transaction.audit(), head), kept_by(transaction))
    return head


def compare(entries: Sequence[SealedEntry], kept: Kept) -> None:
    """Compare a whole log with its store.

    Raises:
        IntegrityError: The store was altered outside the log; the message names the first place.
    """
    read = [read_entry(entry) for entry in entries]
    published = [entry for entry in read if entry.action == "publish"]
    logged: dict[str, dict[str, str]] = {
        "release": {entry.release: entry.digest for entry in read if entry.release},
        "version": {f"{entry.task}@{entry.version}": entry.digest for entry in published},
        "stable version of": {
            entry.task: entry.stable for entry in read if entry.stable is not None
        },
    }
    for what, names in logged.items():
        _compare(names, kept.get(what, {}), what)
    for name, found_name in zip(logged["release"], kept["release"], strict=True):
        if name != found_name:
            # of two releases that may give a device something, the later one does
            raise IntegrityError(
                f"audit log: the store has release {found_name!r} in the place of {name!r}: their "
                "order was altered outside the log"
            )


def verify_chain(
    entries: Sequence[SealedEntry], head: AuditHead | None, before: AuditHead = _START
) -> Sequence[SealedEntry]:
    """Check the hashes and the order of the entries after ``before``, and return the entries.

    Without ``head``, the last entry need not be the log's end.

    Raises:
        IntegrityError: An entry was altered, removed, added or moved.
    """
    for sealed in entries:
        number = before.number + 1
        if sealed.number != number:
            raise IntegrityError(
                broken(number, f"it is missing, and entry {sealed.number} is in its place")
            )
        if digest_text(sealed.text) != sealed.hash:
            raise IntegrityError(broken(number, "its text is not the sealed text"))
        entry = read_entry(sealed)
        if (entry.number, entry.release) != (number, sealed.release_id):
            raise IntegrityError(broken(number, "it was moved from another place"))
        if entry.previous != before.hash:
            raise IntegrityError(broken(number, "it does not follow the previous entry"))
        before = AuditHead(number, sealed.hash)
    if head is not None and before != head:
        raise IntegrityError(
            f"audit log: it ends at entry {before.number}, but entry {head.number} was the last: "
            "its end was cut off or altered"
        )
    return entries


def need_head(entries: Sequence[SealedEntry], kept: AuditHead) -> None:
    """Refuse a log that does not contain a head that was stored elsewhere.

    The entries are verified, and are the whole log or the part from the stored head on.

    Raises:
        IntegrityError: The log was rewritten or cut off, such as by an old copy of the database.
    """
    sealed_hash = next((entry.hash for entry in entries if entry.number == kept.number), "")
    if sealed_hash != kept.hash:
        end = f"at entry {entries[-1].number}" if entries else "before that entry"
        raise IntegrityError(
            f"audit log: entry {kept.number} is not the one that was written down: the log was "
            f"rewritten or cut off; it ends {end}"
        )


def _compare(logged: Mapping[str, object], stored: Mapping[str, object], what: str) -> None:
    for name in sorted(logged.keys() | stored.keys()):
        if logged.get(name) != stored.get(name):
            problem = "is not in the log" if name not in logged else "differs from the log"
            problem = "is gone from the store" if name not in stored else problem
            raise IntegrityError(f"audit log: {what} {name!r} {problem}: altered outside the log")
