"""Host side of the frames: groups in, results out.

``walle_stream.vm.guest.layout`` documents the bytes. Invariant: the host never
unmarshals or unpickles what a guest wrote (altered marshal bytes crash a
process); it reads lengths, checks that they meet exactly, and cuts. Any bytes
at all lead to results or to a ``FrameError``, in time linear in their number.
"""

import marshal
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from walle_stream.errors import FrameError
from walle_stream.vm.guest.layout import DELETED, HEADER, MAGIC, WORD_BYTES
from walle_stream.vm.results import DeviceGroup, GroupResult, RunResult

LEVELS: Final = ("info", "warning", "error")
"""Levels of log lines by their codes."""

_MARSHAL_VERSION: Final = 2  # later versions write equal values as different bytes


class ResultHeader(msgspec.Struct, frozen=True):
    """The outbox's header, when the guest wrote one."""

    status: int
    number: int
    word_count: int
    body_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole result, header included."""
        return HEADER.size + WORD_BYTES * self.word_count + self.body_bytes


def encode_groups(groups: Sequence[DeviceGroup]) -> bytes:
    """Encode a call.

    Args:
        groups: Plain values only.

    Raises:
        FrameError: A value is not plain, or nested deeper than marshal allows.
    """
    plain: Any = groups
    try:
        return marshal.dumps(plain, _MARSHAL_VERSION)
    except ValueError as error:
        devices = ", ".join(repr(group[0]) for group in groups[:3])
        raise FrameError(
            f"the events of {len(groups)} devices ({devices}, ...) cannot be handed to a VM "
            f"({error}): hand over plain values, nested less deep"
        ) from error


def decode_header(outbox: bytes | bytearray | memoryview) -> ResultHeader | None:
    """Read the header.

    Args:
        outbox: At least the header's bytes.

    Returns:
        None when the guest wrote none.
    """
    magic, status, number, word_count, body_bytes = HEADER.unpack_from(outbox)
    return ResultHeader(status, number, word_count, body_bytes) if magic == MAGIC else None


def decode_results(
    groups: Sequence[DeviceGroup], outbox: bytes | bytearray | memoryview
) -> list[GroupResult]:
    """Cut a complete result.

    Args:
        groups: The call that it answers.
        outbox: Header, control words and body; may be longer. Borrowed.

    Returns:
        One result per group, one per run, in order.

    Raises:
        FrameError: Lengths do not meet, an unknown code, or text that is not
            UTF-8.
    """
    header = decode_header(outbox) if len(outbox) >= HEADER.size else None
    if header is None or header.size_bytes > len(outbox):
        raise FrameError(f"a result frame is cut: {len(outbox)} bytes hold no whole frame")
    words = struct.unpack_from(f"<{header.word_count}I", outbox, HEADER.size)
    body = bytes(outbox[HEADER.size + WORD_BYTES * header.word_count : header.size_bytes])
    try:
        return _cut(groups, iter(words), body)
    except StopIteration:
        raise FrameError(
            f"a result frame ends within a run: {len(words)} control words are too few for "
            f"{len(groups)} groups"
        ) from None
    except (UnicodeDecodeError, IndexError) as error:
        raise FrameError(f"a result frame is malformed: {error}") from error


def _cut(groups: Sequence[DeviceGroup], words: Iterator[int], body: bytes) -> list[GroupResult]:
    # A slice beyond the body's end is short, never an error: what proves that
    # every slice was whole is that the last one ends exactly where the body does.
    take = words.__next__
    end = 0
    results = []
    for device_id, _, inputs in groups:
        runs = []
        for _ in inputs:
            ok = take()
            emits = []
            for _ in range(take()):
                start, middle = end, end + take()
                end = middle + take()
                emits.append((body[start:middle], body[middle:end]))
            logs = []
            for _ in range(take()):
                level = LEVELS[take()]
                start, end = end, end + take()
                logs.append((level, body[start:end].decode()))
            if ok == 1:
                runs.append(RunResult(True, emits, logs))  # noqa: FBT003 - hot, keywords cost
                continue
            if ok or emits:
                raise FrameError(f"a result frame is malformed: run code {ok}")
            start, middle = end, end + take()
            end = middle + take()
            error, message = body[start:middle].decode(), body[middle:end].decode()
            runs.append(RunResult(ok=False, logs=logs, error=error, message=message))
        state: dict[str, bytes | None] = {}
        for _ in range(take()):
            start, middle = end, end + take()
            key, size_bytes = body[start:middle].decode(), take()
            if size_bytes == DELETED:
                end, state[key] = middle, None
            else:
                end = middle + size_bytes
                state[key] = body[middle:end]
        results.append(GroupResult(device_id, state, runs))
    if end != len(body) or next(words, None) is not None:
        raise FrameError(
            f"a result frame does not add up: its words say {end} bytes, its body has {len(body)}"
        )
    return results
