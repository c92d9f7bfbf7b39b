"""The audit log: who did what, when and why, as a chain of hashes.

An entry is canonical JSON that names the hash of the entry before, and digests of what the
store keeps since: the release's row, the stable version, a version's files. So an edit, a
removal, a swap or an addition is found by ``verify``, in the log and in what it is about. The
end of the chain is kept beside it; who can write all of the database can make all of it anew,
but not the head that somebody has written down elsewhere.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from walle_deploy.model.releases import VersionFiles
from walle_deploy.store.port import ReadTransaction, WriteTransaction
from walle_deploy.store.rows import AuditHead, SealedEntry, StoredRelease
from walle_stream.errors import IntegrityError

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log."""

    number: int
    """From 1, without gaps."""
    at_ms: int
    """The database's clock."""
    by: str
    """Who: a user's name, or ``controller``."""
    action: str
    """One word; see ``machine.Change``, and ``create`` and ``publish``."""
    why: str = ""
    release: str = ""
    """Its name; empty for a published version."""
    task: str = ""
    version: str = ""
    revision: int = 0
    stage: str = ""
    """After it."""
    percent: float = 0.0
    """After it."""
    stable: str | None = None
    """The task's stable version from then on; None where it stays."""
    digest: str = ""
    """SHA-256 of what the store keeps: the release's row, or the version's files."""
    previous: str = ""
    """Hash of the entry before."""


class Proof(msgspec.Struct, frozen=True):
    """What ``verify`` went through."""

    head: AuditHead
    releases: int
    versions: int


def record(transaction: WriteTransaction, entry: AuditEntry) -> AuditEntry:
    """Seal an entry onto the log's end.

    Args:
        transaction: In which what it tells of is written, too.
        entry: Number, time and previous hash are filled in here.

    Returns:
        The entry as it was written.
    """
    head = transaction.audit_head()
    entry = msgspec.structs.replace(
        entry, number=head.number + 1, at_ms=transaction.now_ms(), previous=head.hash
    )
    text = _canonical(msgspec.to_builtins(entry))
    sealed = SealedEntry(entry.number, entry.release, text, _sha256(text.encode()))
    transaction.append_audit(sealed, head)
    return entry


def read_entry(sealed: SealedEntry) -> AuditEntry:
    """Return what an entry says.

    Args:
        sealed: As stored.

    Raises:
        IntegrityError: It is none.
    """
    try:
        return msgspec.json.decode(sealed.text, type=AuditEntry, strict=True)
    except msgspec.MsgspecError as error:
        raise IntegrityError(_broken(sealed.number, f"it is no entry ({error})")) from error


def digest_release(release: StoredRelease) -> str:
    """Return the digest of a release's row.

    Args:
        release: As it is stored.
    """
    return _sha256(_encode(release))


def digest_files(files: VersionFiles) -> str:
    """Return the digest of a version's files.

    Args:
        files: As they are published.
    """
    return _sha256(_encode(files))


def verify(transaction: ReadTransaction, expected: AuditHead | None = None) -> Proof:
    """Go through the whole log, and compare it with what the store keeps.

    Args:
        transaction: One state of everything.
        expected: A head that was written down before: the log must contain it.

    Raises:
        IntegrityError: Something was altered; the message names the first place.
    """
    entries = verify_chain(transaction.audit(), transaction.audit_head())
    if expected is not None:
        found = entries[expected.number - 1].hash if 0 < expected.number <= len(entries) else ""
        if found != expected.hash:
            raise IntegrityError(
                f"audit log: entry {expected.number} is not the one that was written down: the "
                "log was made anew or cut off"
            )
    read = [read_entry(each) for each in entries]
    rows = {each.release_id: digest_release(each) for each in transaction.releases()}
    _compare({each.release: each.digest for each in read if each.release}, rows, "release")
    published = [each for each in read if each.action == "publish"]
    tasks = sorted({each.task for each in published})
    files = {
        f"{task}@{version}": digest_files(found)
        for task in tasks
        for version, found in transaction.versions(task).items()
    }
    logged = {f"{each.task}@{each.version}": each.digest for each in published}
    _compare(logged, files, "version")
    stable = {each.task: each.stable for each in read if each.stable is not None}
    _compare(stable, transaction.stable(), "stable version of")
    return Proof(transaction.audit_head(), len(rows), len(files))


def verify_chain(entries: Sequence[SealedEntry], head: AuditHead) -> Sequence[SealedEntry]:
    """Check the entries' hashes and order.

    Args:
        entries: All of the log.
        head: Its end, as it is kept beside it.

    Returns:
        The entries.

    Raises:
        IntegrityError: An entry was altered, left out, added or moved.
    """
    before = AuditHead()
    for sealed in entries:
        number = before.number + 1
        if sealed.number != number:
            raise IntegrityError(
                _broken(number, f"it is missing, entry {sealed.number} stands in its place")
            )
        if _sha256(sealed.text.encode("utf-8", "surrogatepass")) != sealed.hash:
            raise IntegrityError(_broken(number, "its text is not what was sealed"))
        entry = read_entry(sealed)
        if (entry.number, entry.release) != (number, sealed.release_id):
            raise IntegrityError(_broken(number, "it was moved from another place"))
        if entry.previous != before.hash:
            raise IntegrityError(_broken(number, "it does not follow the entry before"))
        before = AuditHead(number, sealed.hash)
    if before != head:
        raise IntegrityError(
            f"audit log: it ends at entry {before.number}, but entry {head.number} was the last "
            "one: its end was cut off or altered"
        )
    return entries


def _compare(logged: Mapping[str, object], found: Mapping[str, object], what: str) -> None:
    for name in sorted(logged.keys() | found.keys()):
        if logged.get(name) != found.get(name):
            problem = "is not in the log" if name not in logged else "differs from the log"
            problem = "is gone from the store" if name not in found else problem
            raise IntegrityError(f"audit log: {what} {name!r} {problem}: it was altered past it")


def _broken(number: int, problem: str) -> str:
    return (
        f"audit log: entry {number}: {problem}; nothing from here on can be trusted, compare it "
        "with a backup"
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
