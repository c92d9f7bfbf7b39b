"""The audit log: who did what, when and why, as a chain of hashes.

An entry is canonical JSON that names the hash of the entry before, and digests of what the
store keeps since: the release's row, the stable version, a version's files. So an edit, a
removal, a swap or an addition is found by ``verification.verify``, in the log and in what it is
about. The end of the chain is kept beside it; who can write all of the database can make all of it
anew, but not the head that somebody has written down elsewhere.
"""

import hashlib
import json
from typing import Final

import msgspec

from walle_deploy.model.releases import VersionFiles
from walle_deploy.store.rows import SealedEntry, StoredRelease
from walle_deploy.store.writer import WriteTransaction
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
    verified: bool | None = None
    """Whether a person proved who it is; False: it is what somebody typed; None: no person."""
    issuer: str = ""
    """Who says who it is, of a person who proved it."""
    subject: str = ""
    """Whom the issuer means by that."""
    role: str = ""
    """Of the person, at that time."""
    request: str = ""
    """Id that whoever asked gave it: the same once more is the same request."""
    action: str
    """One word; see ``machine.Change``, and ``create``, ``publish`` and ``adopt``."""
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


def record(transaction: WriteTransaction, entry: AuditEntry) -> AuditEntry:
    """Seal an entry onto the log's end, and return it.

    Number, time and previous hash are filled in here.
    """
    head = transaction.audit_head()
    entry = msgspec.structs.replace(
        entry, number=head.number + 1, at_ms=transaction.now_ms(), previous=head.hash
    )
    fields = msgspec.to_builtins(entry)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    sealed = SealedEntry(entry.number, entry.release, text, digest_text(text))
    transaction.append_audit(sealed, head)
    return entry


def shown_by(entry: AuditEntry) -> str:
    """Return who did it, for people."""
    return f"{entry.by} (unverified)" if entry.verified is False else entry.by


def read_entry(sealed: SealedEntry) -> AuditEntry:
    """Return what an entry says.

    Raises:
        IntegrityError: It is none.
    """
    try:
        return msgspec.json.decode(sealed.text, type=AuditEntry, strict=True)
    except msgspec.MsgspecError as error:
        raise IntegrityError(broken(sealed.number, f"it is no entry ({error})")) from error


def broken(number: int, problem: str) -> str:
    """Return the message about an entry that cannot be trusted."""
    return (
        f"audit log: entry {number}: {problem}; nothing from here on can be trusted, compare it "
        "with a backup"
    )


def digest(of: StoredRelease | VersionFiles) -> str:
    """Return the digest of what the store keeps, for an entry."""
    return hashlib.sha256(_encode(of)).hexdigest()


def digest_text(text: str) -> str:
    """Return the hash of an entry's text; what no text of ours has is hashed, too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
