"""Public keys of an issuer of tokens: a set of JSON Web Keys (RFC 7517) in a file.

The kind of a key decides on the algorithm of its tokens; the token's own header never does.
So no unsigned token is accepted, nor one signed with a public key as a shared secret.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import jwt
import msgspec

from walle_stream.errors import SpecFileError

ALGORITHMS: Final = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256", ("RSA", ""): "RS256"}
"""Algorithm of tokens, by kind and curve of the key (RFC 7518, RFC 8037)."""

type Keys = Mapping[str, jwt.PyJWK]
"""Public keys by their ids."""

KEYS_MAX_BYTES: Final = 1024 * 1024
_RSA_BITS: Final = 2_048
_SECRET: Final = frozenset({"d", "k"})


class KeySet(msgspec.Struct):
    """A set of JSON Web Keys."""

    keys: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=1_000)]


def read_keys(path: Path) -> Keys:
    """Return the public keys of a file; see ``parse_keys``.

    Raises:
        SpecFileError: The file is not a set of keys, has no usable key, or has a private key.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return parse_keys(file.read(KEYS_MAX_BYTES + 1), str(path))


def parse_keys(data: bytes, path: str) -> Keys:
    """Return the public keys of a JSON set by their ids.

    Keys of other kinds, and keys not meant for signatures, are ignored.

    Raises:
        SpecFileError: The data is not a set of keys, has no usable key, or has a private key.
    """
    try:
        keys = _parse_set(data)
    except (ValueError, RecursionError, jwt.PyJWTError) as error:
        raise SpecFileError(
            f"{path}: is not a set of keys for tokens (JWKS): {error}", path
        ) from None
    if not keys:
        raise SpecFileError(f"{path}: has no key of Ed25519, P-256 or RSA for signatures", path)
    return keys


def _parse_set(data: bytes) -> dict[str, jwt.PyJWK]:
    if len(data) > KEYS_MAX_BYTES:
        raise ValueError(f"more than {KEYS_MAX_BYTES} bytes")
    keys: dict[str, jwt.PyJWK] = {}
    for number, key in enumerate(msgspec.json.decode(data, type=KeySet).keys, 1):
        public_key = _public_key(key, f"key {number}")
        if (
            public_key is not None
            and keys.setdefault(public_key.key_id or "", public_key) is not public_key
        ):
            raise ValueError(f"key {number}: a second key with kid {public_key.key_id!r}")
    return keys


def _public_key(key: Mapping[str, Any], label: str) -> jwt.PyJWK | None:
    if _SECRET & key.keys():
        raise ValueError(
            f"{label} is a private key: remove it, and trust no token that it has signed"
        )
    kind = key.get("kty")
    algorithm = ALGORITHMS.get((str(kind), str(key.get("crv", ""))))
    if algorithm is None or key.get("use", "sig") != "sig":
        return None
    if kind == "RSA" and key.get("alg", algorithm) != algorithm:
        return None  # issuers also have keys for RSA-PSS or SHA-512
    if key.get("alg", algorithm) not in {algorithm, "Ed25519"}:
        raise ValueError(
            f"{label}: alg {key['alg']!r} is not {algorithm}, the algorithm of its kind"
        )
    if not isinstance(key.get("kid"), str) or not key["kid"]:
        raise ValueError(f"{label} has no kid")
    public_key = jwt.PyJWK(dict(key), algorithm=algorithm)
    if kind == "RSA" and public_key.key.key_size < _RSA_BITS:
        raise ValueError(f"{label}: {public_key.key.key_size} bits of RSA, expected {_RSA_BITS}")
    return public_key
