"""Signed tokens (JWT, RFC 7519; checked as RFC 8725 asks for): whose they are, until when.

A token that was verified is believed again without its signature, as long as the keys are the
same: a look at a table in place of 0.3 ms. What was refused is looked at anew each time.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, NamedTuple

import jwt

from walle_deploy.identity.keys import read_keys
from walle_deploy.identity.proven import Proven, Role, proven_as
from walle_deploy.identity.settings import TokensSpec
from walle_deploy.policy.files import WatchedFile
from walle_stream.errors import IdentityError

TOKEN_MAX_BYTES: Final = 4_096
"""Longest token."""

_BEARER: Final = b"bearer "
_SHOWN: Final = 200
_WANTED: Final = ("aud", "exp", "iss", "sub")


class _Believed(NamedTuple):
    proven: Proven
    ends_s: float


class _Known(NamedTuple):
    """Keys, and what was verified with them: both go together."""

    keys: Mapping[str, jwt.PyJWK]
    tokens: OrderedDict[bytes, _Believed]


class TokenAuthenticator:
    """Believes tokens of one issuer. One event loop; ``watched`` is read again by a thread."""

    def __init__(self, spec: TokensSpec) -> None:
        """Read the keys; blocks.

        Args:
            spec: How it is set up.

        Raises:
            SpecFileError: The keys cannot be read.
        """
        self._spec = spec
        self._roles: dict[str, Role] = {spec.relay_audience: "relay", spec.audience: "device"}
        self._header = spec.header.encode()
        self._skew_s = spec.skew_ms / 1_000
        self.headers = frozenset({self._header})
        self._keys = WatchedFile.opened(spec.keys, read_keys)
        self.watched = (self._keys,)
        self._known = _Known({}, OrderedDict())

    def prove(self, headers: Mapping[bytes, bytes], peer: str, now_s: float) -> Proven:  # noqa: ARG002 - of the port
        """See ``DeviceAuthenticator``.

        Raises:
            IdentityError: There is no token, or it is not to be believed.
        """
        token = headers.get(self._header, b"")
        if token[: len(_BEARER)].lower() == _BEARER:
            token = token[len(_BEARER) :]
        known = self._known
        if known.keys is not self._keys.known:
            known = self._known = _Known(self._keys.known or {}, OrderedDict())
        digest = blake2b(token, digest_size=16).digest()
        believed = known.tokens.get(digest)
        if believed is None:
            believed = self._verified(token, known.keys, now_s)
            known.tokens[digest] = believed
            if len(known.tokens) > self._spec.cached:
                known.tokens.popitem(last=False)
        else:
            known.tokens.move_to_end(digest)
            self._check_end(believed.ends_s, now_s)
        return believed.proven

    def _verified(self, token: bytes, keys: Mapping[str, jwt.PyJWK], now_s: float) -> _Believed:
        if not token:
            raise IdentityError(f"no token: expected one in the header {self._spec.header}")
        if len(token) > TOKEN_MAX_BYTES:
            raise IdentityError(f"a token of {len(token)} bytes: at most {TOKEN_MAX_BYTES}")
        try:
            claims = self._claims(token.decode("ascii"), keys)
            ends_s = _seconds(claims, "exp")
            begins_s = max(_seconds(claims, "nbf"), _seconds(claims, "iat"))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise IdentityError(
                f"the token is not valid: {repr(str(error)[:_SHOWN])[1:-1]}"
            ) from None
        self._check_end(ends_s, now_s)
        if begins_s > now_s + self._skew_s:
            raise IdentityError(
                f"the token is valid from {_shown(begins_s)} on: a clock may be wrong"
            )
        return _Believed(self._proven(claims), ends_s)

    def _claims(self, token: str, keys: Mapping[str, jwt.PyJWK]) -> dict[str, Any]:
        key = keys.get(jwt.get_unverified_header(token).get("kid", ""))
        if key is None:
            raise jwt.InvalidKeyError("its key (kid) is not known, or retired")
        return jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            issuer=self._spec.issuer,
            audience=list(self._roles),
            # times are looked at here, as a token is believed for longer than this call
            options={
                "require": list(_WANTED),
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )

    def _proven(self, claims: Mapping[str, Any]) -> Proven:
        audiences = [claims["aud"]] if isinstance(claims["aud"], str) else claims["aud"]
        roles = {self._roles[each] for each in audiences if each in self._roles}
        if len(roles) != 1:
            raise IdentityError("the token is for devices and for relays: one of both is needed")
        token = claims.get("jti", "")
        return proven_as(roles.pop(), claims["sub"], token if isinstance(token, str) else "")

    def _check_end(self, ends_s: float, now_s: float) -> None:
        if ends_s + self._skew_s <= now_s:
            raise IdentityError(
                f"the token expired at {_shown(ends_s)}: a new one is needed, or a clock is wrong"
            )


def _shown(at_s: float) -> str:
    # the same for each request of a device, which says once why it fails
    try:
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g} s"


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise TypeError(f"{name} is no time")
    return float(value)
