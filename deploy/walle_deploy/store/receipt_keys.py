"""Keys of receipts, kept in the release store: one list for all of its services.

A key signs for a day, from a minute after it was made (all services know it by then), and is
believed for eight days more. What is not of these days, by a clock that was wrong, goes.
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
    """When services asked nobody who he is: what was reported then may be from anybody."""

    until_ms: int = 0
    """The next look of the last one that did."""
    releases: frozenset[str] = frozenset()
    """That were there meanwhile: whatever clocks do, these stay."""

    def includes(self, release_id: str, created_ms: int) -> bool:
        """Return whether a release was there meanwhile."""
        return release_id in self.releases or self.until_ms >= created_ms


class StoredReceiptKeys:
    """Keys of receipts, and the clock that these go by. Any thread; ``refresh`` blocks, seldom."""

    def __init__(
        self,
        store: ReleaseStore,
        monotonic: Callable[[], float] = monotonic_ms,
        *,
        is_open: bool = False,
    ) -> None:
        """Look at nothing yet; the store stays the caller's.

        ``is_open``: anybody gets receipts, and each look notes that in the store. ``monotonic`` is
        in milliseconds.
        """
        self._store = store
        self._monotonic = monotonic
        self._is_open = is_open
        self._lock = Lock()
        self.known: ReceiptKeys | None = None
        """Those of the last ``refresh``, None where nobody looked yet."""
        self._ordered: list[_StoredKey] = []
        self._ahead_ms = 0.0  # of the database's clock before the monotonic one
        self._next_ms = -float(LOOK_MS)

    @property
    def keys(self) -> ReceiptKeys:
        """Those of the last ``refresh``, the same object while they are the same; the first asks.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        return self.known or self.refresh()

    def now_ms(self) -> int:
        """Return the database's clock as of the last ``refresh`` and the time since."""
        return int(self._monotonic() + self._ahead_ms)

    def refresh(self) -> ReceiptKeys:
        """Take newer keys over, make one where it is time, and return all of them.

        Raises:
            ServiceUnreachableError: The database does not answer; the last keys stay in use.
            IntegrityError: What is stored are no keys.
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
                    # until the next look, or a release that begins before it would seem proven
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
            if _is_due(keys, now_ms):  # no other service was first
                kept = [key for key in keys if abs(now_ms - key.made_ms) <= _KEPT_MS]
                keys = [_StoredKey(*new_key(), now_ms), *kept]
                transaction.put_snapshot(_KIND, _NAME, msgspec.json.encode(keys))
        return keys, now_ms


def read_open_mode(transaction: ReadTransaction) -> OpenMode:
    """Return what the store knows of services that asked nobody who he is.

    Raises:
        IntegrityError: What is stored is not that.
    """
    data = transaction.snapshot(_KIND, _OPEN)
    try:
        return OpenMode() if data is None else msgspec.json.decode(data, type=OpenMode)
    except msgspec.MsgspecError as error:
        wrong: IntegrityError = altered("which releases were there in the open mode", error)
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
            f"the keys of receipts in the release store were altered: {error}: delete that row of "
            "walle_snapshots (kind receipts); devices get new receipts"
        ) from error
