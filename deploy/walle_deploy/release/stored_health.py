"""The memory of gates in the store: the controller writes it, any process reads it."""

from functools import lru_cache
from typing import Final

import msgspec

from walle_deploy.release.gates import Judgement, judge
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory
from walle_deploy.release.state import ReleaseState
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.writer import WriteTransaction
from walle_stream.errors import IntegrityError

_KIND: Final = "gates"


def put_memory(transaction: WriteTransaction, release_id: str, memory: Memory) -> None:
    """Store the memory of a release's gates in place of the previous one."""
    transaction.put_snapshot(_KIND, release_id, msgspec.json.encode(memory))


def read_memory(transaction: ReadTransaction, release_id: str) -> Memory:
    """Return the memory of a release's gates, empty before their first look.

    Raises:
        IntegrityError: The stored data is not a memory of gates.
    """
    return _read(release_id, transaction.snapshot(_KIND, release_id))


def _read(release_id: str, data: bytes | None) -> Memory:
    if data is None:
        return Memory()
    try:
        return msgspec.json.decode(data, type=Memory)
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"gates of {release_id!r} in the release store: {error}") from error


def judge_stored(transaction: ReadTransaction, state: ReleaseState) -> Judgement | None:
    """Return the gates' result for the stored memory, or None before the first offer."""
    if not state.offered_ms:
        return None
    release, name = state.release, state.release.metadata.name
    data = transaction.snapshot(_KIND, name)
    return _judged(name, release.spec.gates, data, is_over=not state.is_open)


@lru_cache(1_000)
def _judged(release_id: str, gates: Gates, data: bytes | None, *, is_over: bool) -> Judgement:
    # judging takes some milliseconds, and the memory changes at most once a minute
    return judge(gates, _read(release_id, data), is_over=is_over)
