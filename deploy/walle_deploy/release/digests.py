"""Digests of what the audit log is about."""

import hashlib
from typing import Final

import msgspec

from walle_deploy.model.releases import VersionFiles
from walle_deploy.store.rows import StoredRelease

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def digest_text(text: str) -> str:
    """Return the hash of an entry's text.

    Args:
        text: As it is stored; what no text of ours has is hashed, too.
    """
    return _sha256(text.encode("utf-8", "surrogatepass"))


def digest_release(release: StoredRelease) -> str:
    """Return the digest of a release's row."""
    return _sha256(_encode(release))


def digest_files(files: VersionFiles) -> str:
    """Return the digest of a version's files."""
    return _sha256(_encode(files))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
