"""Public keys of an issuer of tokens: a set of JSON Web Keys (RFC 7517) in a file.

A key says by its kind which algorithm its tokens have; what a token says of that is never asked.
So no token signed with no key, or with a public key as if it were a shared secret, is believed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import jwt
import msgspec

from walle_stream.errors import SpecFileError

ALGORITHMS: Final = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256"}
"""Of tokens, by kind and curve of the key (RFC 7518, RFC 8037)."""

_FILE_MAX: Final = 1024 * 1024
_SECRET: Final = frozenset({"d", "k"})


class KeySet(msgspec.Struct):
    """A set of JSON Web Keys."""

    keys: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=1_000)]


def read_keys(path: Path) -> Mapping[str, jwt.PyJWK]:
    """Return the public keys of a file by their ids.

    Args:
        path: JSON. Keys of another kind, such as RSA, and those for something else than
            signatures are passed over.

    Raises:
        SpecFileError: It is no set of keys, has none of use, or has what is to be secret.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(_FILE_MAX + 1)
    try:
        found = _taken(data)
    except (ValueError, RecursionError, jwt.PyJWTError) as error:
        raise SpecFileError(f"{path}: holds no keys of tokens (JWKS): {error}", str(path)) from None
    if not found:
        raise SpecFileError(f"{path}: has no key of Ed25519 or P-256 for signatures", str(path))
    return found


def _taken(data: bytes) -> dict[str, jwt.PyJWK]:
    if len(data) > _FILE_MAX:
        raise ValueError(f"more than {_FILE_MAX} bytes")
    found: dict[str, jwt.PyJWK] = {}
    for number, key in enumerate(msgspec.json.decode(data, type=KeySet).keys, 1):
        made = _public_key(key, f"key {number}")
        if made is not None and found.setdefault(made.key_id or "", made) is not made:
            raise ValueError(f"key {number}: a second one with kid {made.key_id!r}")
    return found


def _public_key(key: Mapping[str, Any], place: str) -> jwt.PyJWK | None:
    if _SECRET & key.keys():
        raise ValueError(
            f"{place} is a secret one: take it out, and trust nothing that it has signed"
        )
    kind = key.get("kty"), key.get("crv")
    algorithm = ALGORITHMS.get(kind) if all(isinstance(each, str) for each in kind) else None  # type: ignore[arg-type]
    if algorithm is None or key.get("use", "sig") != "sig":
        return None
    if key.get("alg", algorithm) not in {algorithm, "Ed25519"}:
        raise ValueError(f"{place}: alg {key['alg']!r} is not {algorithm}, that of its kind")
    if not isinstance(key.get("kid"), str) or not key["kid"]:
        raise ValueError(f"{place} has no kid")
    return jwt.PyJWK(dict(key), algorithm=algorithm)
