"""Signed tokens (JWT, RFC 7519; checked as RFC 8725 asks): their owners and validity.

A verified token is accepted again without a check of its signature while the keys are the same: a
table look-up instead of 0.3 ms. A refused token is checked again each time.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, NamedTuple

import jwt

from walle_deploy.identity.issuer import IssuerKeys
from walle_deploy.identity.keys import Keys, read_keys
from walle_deploy.identity.proven import Proven, Role, proven_as
from walle_deploy.identity.settings import IssuerSpec, TokensSpec
from walle_deploy.policy.files import WatchedFile
from walle_stream.errors import IdentityError
from walle_stream.wire.bearer import TOKEN_HEADER

TOKEN_MAX_BYTES: Final = 4_096
_BEARER: Final = b"bearer "
_SHOWN: Final = 200


class _Believed[T](NamedTuple):
    proven: T
    begins_s: float
    ends_s: float


class _Known[T](NamedTuple):
    """Keys, and the tokens verified with them: both are replaced together."""

    keys: Keys
    tokens: OrderedDict[bytes, _Believed[T]]


class Tokens[T]:
    """Verifies tokens of one issuer. One thread at a time if it caches tokens."""

    def __init__(
        self,
        spec: IssuerSpec,
        keys: WatchedFile[Keys] | IssuerKeys,
        audiences: Collection[str],
        read: Callable[[Mapping[str, Any]], T],
        cached: int = 0,
    ) -> None:
        """Start without tokens. ``read`` returns the owner from a token's claims, or raises.

        Up to ``cached`` tokens are not verified again.
        """
        self._spec = spec
        self._keys = keys
        self._audiences = audiences
        self._read = read
        self._cached = cached
        self._skew_s = spec.skew_ms / 1_000
        self.headers = frozenset({spec.header.encode(), TOKEN_HEADER.encode()})
        self._known: _Known[T] = _Known({}, OrderedDict())

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> T:  # noqa: ARG002 - of the port
        """See ``DeviceAuthenticator``.

        Raises:
            IdentityError: There is no token, or it is not valid.
        """
        token = self._token(headers)
        known = self._known
        if known.keys is not self._keys.known:
            known = self._known = _Known(self._keys.known or {}, OrderedDict())
        digest = blake2b(token, digest_size=16).digest()
        believed = known.tokens.get(digest)
        if believed is None:
            believed = self._verified(token, known.keys, now_s)
            if self._cached:
                known.tokens[digest] = believed
                if len(known.tokens) > self._cached:
                    known.tokens.popitem(last=False)
        else:
            known.tokens.move_to_end(digest)
            self._check_times(believed.begins_s, believed.ends_s, now_s)
        return believed.proven

    def _token(self, headers: Mapping[bytes, bytes]) -> bytes:
        tokens = {_without_scheme(headers[name]) for name in self.headers if headers.get(name)}
        tokens.discard(b"")
        if len(tokens) == 1:
            return tokens.pop()
        names = ", ".join(sorted({self._spec.header, TOKEN_HEADER}))
        if tokens:
            # refuse both: another reader may look at one header alone, and must not be deceived
            raise IdentityError(f"the headers {names} have different tokens: expected one")
        raise IdentityError(f"no token: expected one in a header of {names}")

    def _verified(self, token: bytes, keys: Keys, now_s: float) -> _Believed[T]:
        if len(token) > TOKEN_MAX_BYTES:
            raise IdentityError(
                f"a token has {len(token)} bytes: at most {TOKEN_MAX_BYTES} are allowed"
            )
        try:
            claims = read_claims(
                token.decode("ascii"), keys, self._audiences, self._spec.issuer, ("exp", "sub")
            )
            ends_s = _seconds(claims, "exp")
            begins_s = max(_seconds(claims, "nbf"), _seconds(claims, "iat"))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise IdentityError(
                f"the token is not valid: {repr(str(error)[:_SHOWN])[1:-1]}"
            ) from None
        self._check_times(begins_s, ends_s, now_s)
        return _Believed(self._read(claims), begins_s, ends_s)

    def _check_times(self, begins_s: float, ends_s: float, now_s: float) -> None:
        if begins_s > now_s + self._skew_s:
            raise IdentityError(
                f"the token is valid from {_shown(begins_s)} on: a clock may be wrong"
            )
        if ends_s + self._skew_s <= now_s:
            raise IdentityError(
                f"the token expired at {_shown(ends_s)}: a new one is needed, or a clock is wrong"
            )


class TokenAuthenticator(Tokens[Proven]):
    """Authenticates devices and relays. One event loop; a thread reads ``watched`` again."""

    def __init__(self, spec: TokensSpec) -> None:
        """Read the keys; blocks.

        Raises:
            SpecFileError: The keys cannot be read.
        """
        self._roles: dict[str, Role] = {spec.relay_audience: "relay", spec.audience: "device"}
        keys = WatchedFile.opened(spec.keys, read_keys)
        self.watched = (keys,)
        super().__init__(spec, keys, list(self._roles), self._proven, spec.cached)

    def _proven(self, claims: Mapping[str, Any]) -> Proven:
        audiences = [claims["aud"]] if isinstance(claims["aud"], str) else claims["aud"]
        roles = {self._roles[audience] for audience in audiences if audience in self._roles}
        if len(roles) != 1:
            raise IdentityError("the token is for devices and for relays: expected one of both")
        return proven_as(roles.pop(), claims["sub"], str(claims.get("jti", "")))


def read_claims(
    token: str, keys: Keys, audiences: Collection[str], issuer: str, wanted: Collection[str]
) -> dict[str, Any]:
    """Return the claims of a token with a valid signature. Its times are not checked.

    The token must be for one of the audiences, of the issuer (empty: of any key's owner), and have
    the ``wanted`` claims besides. The key decides on the algorithm, not the token.

    Raises:
        InvalidKeyError: Its key is unknown. Other errors are other kinds of PyJWTError.
    """
    key = keys.get(jwt.get_unverified_header(token).get("kid", ""))
    if key is None:
        raise jwt.InvalidKeyError("its key (kid) is unknown or retired")
    return jwt.decode(
        token,
        key,
        algorithms=[key.algorithm_name],
        issuer=issuer or None,
        audience=audiences,
        # the caller checks times, since a token is accepted for longer than this call
        options={
            "require": ["aud", "iss", *wanted],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        },
    )


def _without_scheme(value: bytes) -> bytes:
    return value[len(_BEARER) :] if value[: len(_BEARER)].lower() == _BEARER else value


def _shown(at_s: float) -> str:
    # equal text for each request of a device, so that its failure is logged once
    try:
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g} s"


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise TypeError(f"{name} is not a time")
    return float(value)
