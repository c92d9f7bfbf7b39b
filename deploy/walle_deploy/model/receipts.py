"""Receipts, which devices attach to reports so that gates count these.

The release service makes one for each version on a device, and stores none. A receipt contains its
facts and a MAC (HMAC-SHA-256, RFC 2104, cut to 16 bytes as its section 5 allows). All services of a
store have the same keys. A receipt proves that the service stated its facts; other means prove the
identity of the device that asked.
"""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from typing import Any, Final, Literal, Self

import msgspec

from walle_stream.errors import ReceiptError

type Group = Literal["", "new", "control"]
"""``new``: has a release's version by its share. ``control``: has the previous version, and is
admitted by the release's policy, but beyond the share. Empty: neither."""

VALID_MS: Final = 7 * 86_400_000
AHEAD_MS: Final = 300_000
"""Largest time of a receipt ahead of the clock, because database clocks are adjusted."""

_MAC_BYTES: Final = 16
_KEY_BYTES: Final = 32
_LENGTH_MAX: Final = 4_096
_DOMAIN: Final = b"walle receipt 1\0"
_SHOWN: Final = 64


class Receipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The release service's statement about one version of one task on one device."""

    device: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    """The version that runs there, or is about to."""
    release: str = ""
    """Id of the release in progress that includes the device; empty for none."""
    group: Group = ""
    issued_ms: int = 0
    """Time of issue by the store's clock in epoch ms."""


class ReceiptKeys:
    """Receipt keys of a store. Immutable; any thread; never blocks."""

    def __init__(self, keys: Iterable[tuple[str, bytes]]) -> None:
        """Take ids with 32 secret bytes each. The first key signs, all of them are accepted.

        Raises:
            ValueError: There is no key, or one has another length.
        """
        self._keys = dict(keys)
        if not self._keys or any(len(secret) != _KEY_BYTES for secret in self._keys.values()):
            raise ValueError(f"receipts need keys of {_KEY_BYTES} bytes")
        self._signing = next(iter(self._keys))
        self._secret = self._keys[self._signing]

    def has(self, ids: Iterable[str]) -> bool:
        """Return whether all of these keys are present."""
        return self._keys.keys() >= set(ids)

    @classmethod
    def create(cls) -> Self:
        """Make a new key."""
        return cls([new_key()])

    def issue(self, receipt: Receipt) -> str:
        """Return a receipt as text: letters, digits, ``-`` and ``_``."""
        payload = _encode((self._signing, receipt))
        mac = hmac.digest(self._secret, _DOMAIN + payload, "sha256")[:_MAC_BYTES]
        return urlsafe_b64encode(payload + mac).rstrip(b"=").decode("ascii")

    def read(self, token: str, now_ms: int) -> Receipt:
        """Return a receipt after a check of its MAC and age.

        The token is not trusted. ``now_ms`` is the store's clock in epoch ms.

        Raises:
            ReceiptError: The receipt is forged or its key unknown (``forged``), older than 7 days
                (``expired``), or more than 5 minutes ahead (``ahead``).
        """
        payload, mac = _split(token)
        key, receipt = _decoded(payload)
        secret = self._keys.get(key)
        if secret is None:
            raise ReceiptError(f"a receipt has an unknown key {key[:_SHOWN]!r}", "forged")
        right = hmac.digest(secret, _DOMAIN + payload, "sha256")[:_MAC_BYTES]
        if not hmac.compare_digest(right, mac):
            raise ReceiptError("a receipt does not match its key", "forged")
        age_ms = now_ms - receipt.issued_ms
        if age_ms > VALID_MS:
            raise ReceiptError(
                f"a receipt is {age_ms / 86_400_000:.1f} days old: the limit is 7", "expired"
            )
        if age_ms < -AHEAD_MS:
            raise ReceiptError(f"a receipt is {-age_ms / 1_000:.0f} s ahead", "ahead")
        return receipt


def new_key() -> tuple[str, bytes]:
    """Make a key for ``ReceiptKeys``: its id, and its secret."""
    return secrets.token_hex(4), secrets.token_bytes(_KEY_BYTES)


def peek(token: str) -> tuple[str, Receipt]:
    """Return the key's id and the content of a receipt, unverified, because devices have no key.

    Raises:
        ReceiptError: The text is not a receipt (``forged``).
    """
    return _decoded(_split(token)[0])


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[Any] = msgspec.msgpack.Decoder(tuple[str, Receipt])


def _split(token: str) -> tuple[bytes, bytes]:
    if not token or len(token) > _LENGTH_MAX:
        raise ReceiptError(f"a receipt has {len(token)} characters", "forged")
    try:
        text = token.encode("ascii")
        data = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except (Base64Error, UnicodeEncodeError, ValueError) as error:
        raise ReceiptError("a receipt is not base64url", "forged") from error
    return data[:-_MAC_BYTES], data[-_MAC_BYTES:]


def _decoded(payload: bytes) -> tuple[str, Receipt]:
    try:
        content: tuple[str, Receipt] = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ReceiptError("a receipt is malformed", "forged") from error
    return content
