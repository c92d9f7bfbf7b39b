"""Keys of receipts in the release store, one list for all of its services.

A key signs for one day. It begins a minute after it was made, when all services know it. It stays
valid for eight days more. Keys outside these days, made by a wrong clock, are deleted.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

import msgspec

from walle_deploy.model.receipts import ReceiptKeys, new_key
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.schema import altered
from walle_stream.clock import monotonic_ms
from walle_stream.errors import IntegrityError

LOOK_MS: Final = 10_000
_KIND: Final = "receipts"
_NAME: Final = "keys"
_OPEN: Final = "open"
_DAY_MS: Final = 86_400_000
_SETTLED_MS: Final = 60_000
_KEPT_MS: Final = 9 * _DAY_MS


class _StoredKey(msgspec.Struct, frozen=True):
    id: str
    secret: bytes
    made_ms: int


class OpenMode(msgspec.Struct, frozen=True):
    """Times without authentication: any caller may have sent the reports of these times."""

    until_ms: int = 0
    """Time of the next look of the last service without authentication."""
    releases: frozenset[str] = frozenset()
    """Releases that existed meanwhile; they stay here whatever clocks do."""

    def includes(self, release_id: str, created_ms: int) -> bool:
        """Return whether a release existed meanwhile."""
        return release_id in self.releases or self.until_ms >= created_ms


class StoredReceiptKeys:
    """Keys of receipts, and their clock. Any thread; ``refresh`` blocks, but seldom."""

    def __init__(
        self,
        store: ReleaseStore,
        monotonic: Callable[[], float] = monotonic_ms,
        *,
        is_open: bool = False,
    ) -> None:
        """Start without a look at the store, which stays the caller's.

        With ``is_open`` any caller gets receipts, and each look records this in the store.
        ``monotonic`` returns milliseconds.
        """
        self._store = store
        self._monotonic = monotonic
        self._is_open = is_open
        self._lock = Lock()
        self.known: ReceiptKeys | None = None
        """Keys of the last ``refresh``, None before the first."""
        self._ordered: list[_StoredKey] = []
        self._ahead_ms = 0.0  # the database's clock minus the monotonic clock
        self._next_ms = -float(LOOK_MS)

    @property
    def keys(self) -> ReceiptKeys:
        """Keys of the last ``refresh``; the first access asks. Unchanged keys are the same object.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        return self.known or self.refresh()

    def now_ms(self) -> int:
        """Return the database's clock as of the last ``refresh``, plus the time since."""
        return int(self._monotonic() + self._ahead_ms)

    def refresh(self) -> ReceiptKeys:
        """Read newer keys, make one if it is due, and return all of them.

        Raises:
            ServiceUnreachableError: The database does not answer; the last keys stay in use.
            IntegrityError: The stored keys are malformed.
        """
        with self._lock:
            if self.known is not None and self._monotonic() < self._next_ms:
                return self.known
            with self._store.reading() as transaction:
                keys, now_ms = _read(transaction), transaction.now_ms()
            if _is_due(keys, now_ms):
                keys, now_ms = self._rotated()
            if self._is_open:
                with self._store.writing() as transaction:
                    # valid until the next look: a release that begins before must not seem proven
                    names = {release.release_id for release in transaction.releases()}
                    mode = OpenMode(now_ms + LOOK_MS, read_open_mode(transaction).releases | names)
                    transaction.put_snapshot(_KIND, _OPEN, msgspec.json.encode(mode))
            signing = next((e for e in keys if now_ms - e.made_ms >= _SETTLED_MS), keys[0])
            ordered = sorted(keys, key=lambda key: key is not signing)
            if self.known is None or ordered != self._ordered:
                self._ordered = ordered
                self.known = ReceiptKeys((key.id, key.secret) for key in ordered)
            self._ahead_ms = now_ms - self._monotonic()
            self._next_ms = self._monotonic() + LOOK_MS
            return self.known

    def _rotated(self) -> tuple[Sequence[_StoredKey], int]:
        with self._store.writing() as transaction:
            keys, now_ms = _read(transaction), transaction.now_ms()
            if _is_due(keys, now_ms):  # no other service made one meanwhile
                kept = [key for key in keys if abs(now_ms - key.made_ms) <= _KEPT_MS]
                keys = [_StoredKey(*new_key(), now_ms), *kept]
                transaction.put_snapshot(_KIND, _NAME, msgspec.json.encode(keys))
        return keys, now_ms


def read_open_mode(transaction: ReadTransaction) -> OpenMode:
    """Return the stored times and releases without authentication.

    Raises:
        IntegrityError: The stored data is malformed.
    """
    data = transaction.snapshot(_KIND, _OPEN)
    try:
        return OpenMode() if data is None else msgspec.json.decode(data, type=OpenMode)
    except msgspec.MsgspecError as error:
        wrong: IntegrityError = altered("the record of releases in the open mode", error)
        raise wrong from error


def _is_due(keys: Sequence[_StoredKey], now_ms: int) -> bool:
    return all(abs(now_ms - key.made_ms) >= _DAY_MS for key in keys)


def _read(transaction: ReadTransaction) -> Sequence[_StoredKey]:
    data = transaction.snapshot(_KIND, _NAME)
    if data is None:
        return []
    try:
        return msgspec.json.decode(data, type=list[_StoredKey])
    except msgspec.MsgspecError as error:
        raise IntegrityError(
            f"the keys of receipts in the release store were altered: {error}: delete their row of "
            "walle_snapshots (kind receipts); devices get new receipts"
        ) from error
