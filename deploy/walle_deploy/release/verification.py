"""Goes through the audit log, and compares it with what the store keeps."""

from collections.abc import Mapping, Sequence

from walle_deploy.release.audit import broken, digest, digest_text, read_entry
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import AuditHead, SealedEntry
from walle_stream.errors import IntegrityError


def verify(transaction: ReadTransaction) -> AuditHead:
    """Go through the whole log, and compare it with what the store keeps.

    Returns:
        The log's end.

    Raises:
        IntegrityError: Something was altered; the message names the first place.
    """
    entries = verify_chain(transaction.audit(), transaction.audit_head())
    read = [read_entry(each) for each in entries]
    rows = {each.release_id: digest(each) for each in transaction.releases()}
    logged_rows = {each.release: each.digest for each in read if each.release}
    _compare(logged_rows, rows, "release")
    for name, found_name in zip(logged_rows, rows, strict=True):
        if name != found_name:
            # of two that may give a device something, the later one does
            raise IntegrityError(
                f"audit log: release {found_name!r} stands where {name!r} was made: their order "
                "was altered past it"
            )
    published = [each for each in read if each.action == "publish"]
    files = {
        f"{task}@{version}": digest(found)
        for task in transaction.tasks()
        for version, found in transaction.versions(task).items()
    }
    logged = {f"{each.task}@{each.version}": each.digest for each in published}
    _compare(logged, files, "version")
    stable = {each.task: each.stable for each in read if each.stable is not None}
    _compare(stable, transaction.stable(), "stable version of")
    return transaction.audit_head()


def verify_chain(entries: Sequence[SealedEntry], head: AuditHead) -> Sequence[SealedEntry]:
    """Check the entries' hashes and order.

    Raises:
        IntegrityError: An entry was altered, left out, added or moved.
    """
    before = AuditHead()
    for sealed in entries:
        number = before.number + 1
        if sealed.number != number:
            raise IntegrityError(
                broken(number, f"it is missing, entry {sealed.number} stands in its place")
            )
        if digest_text(sealed.text) != sealed.hash:
            raise IntegrityError(broken(number, "its text is not what was sealed"))
        entry = read_entry(sealed)
        if (entry.number, entry.release) != (number, sealed.release_id):
            raise IntegrityError(broken(number, "it was moved from another place"))
        if entry.previous != before.hash:
            raise IntegrityError(broken(number, "it does not follow the entry before"))
        before = AuditHead(number, sealed.hash)
    if before != head:
        raise IntegrityError(
            f"audit log: it ends at entry {before.number}, but entry {head.number} was the last "
            "one: its end was cut off or altered"
        )
    return entries


def need_head(entries: Sequence[SealedEntry], kept: AuditHead) -> None:
    """Refuse a log that does not contain a head that was kept elsewhere.

    Args:
        entries: All of the log, after ``verify_chain``.
        kept: Its end at that time.

    Raises:
        IntegrityError: It was made anew, or cut off, such as by an old copy of the database.
    """
    found = entries[kept.number - 1].hash if 0 < kept.number <= len(entries) else ""
    if found != kept.hash:
        raise IntegrityError(
            f"audit log: entry {kept.number} is not the one that was written down: the log was "
            f"made anew or cut off; it ends at entry {len(entries)}"
        )


def _compare(logged: Mapping[str, object], found: Mapping[str, object], what: str) -> None:
    for name in sorted(logged.keys() | found.keys()):
        if logged.get(name) != found.get(name):
            problem = "is not in the log" if name not in logged else "differs from the log"
            problem = "is gone from the store" if name not in found else problem
            raise IntegrityError(f"audit log: {what} {name!r} {problem}: it was altered past it")
