"""The audit log: the author, time and reason of each change, as a chain of hashes.

An entry is canonical JSON with the hash of the previous entry. It also has digests of the data that
the store has since: the release's row, the stable version, a version's files. So
``verification.verify`` finds an edit, a removal, a swap or an addition in the log or in that data.
The head of the chain is stored beside the log. A writer of the whole database can rewrite all of
it, but not a copy of the head that is stored elsewhere.
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
    """An entry of the log."""

    number: int
    """From 1, without gaps."""
    at_ms: int
    """Time by the database's clock."""
    by: str
    """Author of the change: a user's name, or ``controller``."""
    verified: bool | None = None
    """Whether a person proved an identity; False if the name was only typed; None for no person."""
    issuer: str = ""
    """Issuer of the proven identity."""
    subject: str = ""
    """Subject of the proven identity, by the issuer's naming."""
    role: str = ""
    """Role of the person at that time."""
    request: str = ""
    """Id of the request, chosen by its sender: a repetition with this id is the same request."""
    action: str
    """One word: ``create``, ``publish``, ``adopt`` or an action of ``machine.Change``."""
    why: str = ""
    release: str = ""
    """Name of the release; empty for a published version."""
    task: str = ""
    version: str = ""
    revision: int = 0
    stage: str = ""
    """Stage after the change."""
    percent: float = 0.0
    """Percent after the change."""
    stable: str | None = None
    """The task's stable version from then on; None if it does not change."""
    digest: str = ""
    """SHA-256 of the data in the store: the release's row, or the version's files."""
    previous: str = ""


def record(transaction: WriteTransaction, entry: AuditEntry) -> AuditEntry:
    """Append a sealed entry to the log, and return it.

    This function fills in number, time and previous hash.
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
    """Return the author of an entry, for people."""
    return f"{entry.by} (unverified)" if entry.verified is False else entry.by


def read_entry(sealed: SealedEntry) -> AuditEntry:
    """Return the content of a sealed entry.

    Raises:
        IntegrityError: The text is not an entry.
    """
    try:
        return msgspec.json.decode(sealed.text, type=AuditEntry, strict=True)
    except msgspec.MsgspecError as error:
        raise IntegrityError(broken(sealed.number, f"it is not an entry ({error})")) from error


def broken(number: int, problem: str) -> str:
    """Return the message about an entry that cannot be trusted."""
    return (
        f"audit log: entry {number}: {problem}; nothing from here on can be trusted: compare the "
        "log with a backup"
    )


def digest(of: StoredRelease | VersionFiles) -> str:
    """Return the digest of data in the store, for an entry."""
    return hashlib.sha256(_encode(of)).hexdigest()


def digest_text(text: str) -> str:
    """Return the hash of an entry's text, which may be altered and so contain lone surrogates."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
