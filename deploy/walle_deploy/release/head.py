"""The signed head of the audit log, for storage that the writers of the database cannot write.

A person who can write the whole database can write a new log, or restore yesterday's copy. Neither
contains the head that was stored elsewhere.
"""

from pathlib import Path
from typing import Final

import jwt

from walle_deploy.identity.keys import read_keys
from walle_deploy.identity.signing import SigningKey
from walle_deploy.identity.tokens import read_claims
from walle_deploy.store.rows import AuditHead
from walle_stream.clock import wall_ms
from walle_stream.errors import IntegrityError, SpecFileError

_AUDIENCE: Final = "walle-audit"


def sign_head(head: AuditHead, key: Path) -> str:
    """Return a head as a token (JWT) with the time of its signature.

    Raises:
        SpecFileError: The file is not a signing key.
    """
    claims = {"number": head.number, "hash": head.hash, "iat": wall_ms() // 1_000}
    return SigningKey.read(key).seal(_AUDIENCE, claims)


def read_head(file: Path, keys: Path) -> AuditHead:
    """Read a head that was stored outside the database; blocks.

    Raises:
        SpecFileError: A file cannot be read.
        IntegrityError: The file is not a head that these keys signed.
    """
    try:
        known, data = read_keys(keys), file.read_bytes()[:4_096]
    except OSError as error:
        raise SpecFileError(f"{error.filename}: {error.strerror}", str(error.filename)) from error
    try:
        text = data.decode("ascii").strip()
        claims = read_claims(text, known, [_AUDIENCE], "", ("number", "hash"))
        return AuditHead(int(claims["number"]), str(claims["hash"]))
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise IntegrityError(f"{file}: is not a head signed by these keys: {error}") from error
