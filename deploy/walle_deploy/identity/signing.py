"""A key that signs tokens, for simulated fleets and one-person set-ups.

Elsewhere an identity provider has the key, and the service only its public half.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, Self

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from walle_deploy.identity.keys import ALGORITHMS, KeySet, read_keys
from walle_deploy.identity.settings import DEVICES, OPERATORS, RELAYS
from walle_stream.clock import wall_ms
from walle_stream.errors import SpecFileError
from walle_stream.store.files import put_file

VALID_S: Final = 3_600

type Signed = Literal["device", "relay", "viewer", "author", "approver"]
"""Kinds of tokens: for devices, relays, and operators by role."""

_OTHERS: Final = 0o077
_AUDIENCES: Final = {"device": DEVICES, "relay": RELAYS}


class SigningKey(msgspec.Struct, frozen=True):
    """A private Ed25519 key as a JSON Web Key, and its issuer."""

    issuer: str
    """Claim ``iss`` of its tokens."""
    key: dict[str, str]

    @classmethod
    def create(cls, issuer: str) -> Self:
        """Make a new key."""
        jwk = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True)
        # its thumbprint (RFC 7638)
        named = {name: jwk[name] for name in ("crv", "kty", "x")}
        digest = sha256(json.dumps(named, separators=(",", ":")).encode()).digest()
        kid = urlsafe_b64encode(digest[:12]).decode()
        return cls(issuer, {**jwk, "kid": kid, "alg": "EdDSA", "use": "sig"})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key that ``write`` stored.

        Raises:
            SpecFileError: The file is missing or malformed, or other users may read it.
        """
        try:
            if path.stat().st_mode & _OTHERS:
                raise SpecFileError(f"{path}: others may read this key: chmod 600 it", str(path))
            signing_key = msgspec.json.decode(path.read_bytes(), type=cls)
            jwt.PyJWK(signing_key.key, algorithm=ALGORITHMS["OKP", "Ed25519"])
        except (OSError, msgspec.MsgspecError, jwt.PyJWTError, UnicodeError) as error:
            raise SpecFileError(
                f"{path}: is not a key of 'walle token key': {error}", str(path)
            ) from None
        return signing_key

    def write(self, private: Path, public: Path) -> None:
        """Write the key for its owner alone, and add its public half to a set of keys; blocks.

        Present keys stay in the set, so their tokens stay valid.

        Raises:
            SpecFileError: The public file is not a set of keys.
            OSError: A file cannot be written.
        """
        keys: list[dict[str, Any]] = []
        if public.exists():
            read_keys(public)
            keys = msgspec.json.decode(public.read_bytes(), type=KeySet).keys
        half = {name: value for name, value in self.key.items() if name != "d"}
        # write the public half first: a verifier must know it before the first token
        put_file(public, msgspec.json.format(msgspec.json.encode(KeySet([half, *keys]))) + b"\n")
        put_file(private, msgspec.json.format(msgspec.json.encode(self)) + b"\n", mode=0o600)

    def sign(self, role: Signed, name: str, valid_s: int = VALID_S, audience: str = "") -> str:
        """Return a token of a device, relay or operator; the role has a default audience."""
        now_s = wall_ms() // 1_000
        claims = {"sub": name, "iat": now_s, "exp": now_s + valid_s}
        if role not in _AUDIENCES:
            claims["role"] = role
        return self.seal(audience or _AUDIENCES.get(role, OPERATORS), claims)

    def seal(self, audience: str, claims: Mapping[str, object]) -> str:
        """Return a token with any claims."""
        claims = {"iss": self.issuer, "aud": audience, **claims}
        key = jwt.PyJWK(self.key, algorithm=ALGORITHMS["OKP", "Ed25519"])
        return jwt.encode(
            claims, key, algorithm=key.algorithm_name, headers={"kid": self.key["kid"]}
        )


class SelfSigned:
    """Tokens for the devices of a host that has the key itself. Any thread."""

    def __init__(self, key: SigningKey) -> None:
        """Start without tokens."""
        self._key = key
        self._tokens: dict[tuple[str, str], tuple[str, int]] = {}

    def device(self, name: str) -> str:
        """Return a token of a device."""
        return self._token("device", name)

    def relay(self) -> str:
        """Return a token of the host, for reports of all its devices."""
        return self._token("relay", "walle-fleet")

    def _token(self, role: Literal["device", "relay"], name: str) -> str:
        now_s = wall_ms() // 1_000
        token, until_s = self._tokens.get((role, name), ("", 0))
        if not now_s < until_s <= now_s + VALID_S:  # also after the clock was set back
            token, until_s = self._key.sign(role, name), now_s + VALID_S // 2
            self._tokens[role, name] = token, until_s
        return token
