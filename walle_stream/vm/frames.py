"""Host side of the frames: groups in, results out.

``walle_stream.vm.guest.layout`` documents the bytes. Invariant: the host never
unmarshals or unpickles a guest's bytes, because altered marshal bytes crash a
process. The host reads lengths, checks that they add up exactly, and cuts. Any
bytes give results or a ``FrameError``, in time linear in their number.
"""

import marshal
import struct
from collections.abc import Sequence
from typing import Any, Final

from walle_stream.errors import FrameError
from walle_stream.vm.guest.layout import (
    DELETED,
    FEW_WORDS,
    GATHERED_MAX_BYTES,
    HEADER,
    MAGIC,
    RUN_CALLED,
    RUN_DONE,
    RUN_FAILED,
    RUN_RETURNED,
    RUN_SILENT,
    WORD_BYTES,
)
from walle_stream.vm.results import DeviceGroup, GroupResult, RunResult
from walle_stream.wire.page_rows import with_packed_rows

LEVELS: Final = ("info", "warning", "error")
"""Levels of log lines by their codes."""

# the result of most runs of many tasks: made once, and only read
_SILENT: Final = RunResult(ok=True)

# invalid UTF-8 fails one run, not the whole frame: ``outputs`` finds the surrogates
_TEXT: Final = ("utf-8", "surrogateescape")

_MARSHAL_VERSION: Final = 4  # writes repeated texts once: half the time of version 2
_CUT_SHORT: Final = "a result frame is cut: {} bytes hold no whole frame"


def encode_groups(groups: Sequence[DeviceGroup]) -> bytes:
    """Encode a call, which holds plain values and the rows of open pages only.

    Raises:
        FrameError: A value is not plain, or nested deeper than marshal allows.
    """
    try:
        plain: Any = with_packed_rows(groups)
        return marshal.dumps(plain, _MARSHAL_VERSION)
    except ValueError as error:
        devices = ", ".join(repr(group[0]) for group in groups[:3])
        raise FrameError(
            f"the events of {len(groups)} devices ({devices}, ...) cannot be passed to a VM "
            f"({error}): pass plain values, nested less deep"
        ) from error


def decode_results(
    groups: Sequence[DeviceGroup], outbox: bytes | bytearray | memoryview
) -> list[GroupResult]:
    """Cut a complete result: header, control words and body; the outbox may be longer.

    Raises:
        FrameError: Lengths do not add up, or a code is unknown.
    """
    if len(outbox) >= HEADER.size:
        magic, _, _, word_count, body_bytes = HEADER.unpack_from(outbox)
        if magic == MAGIC:
            return decode_behind_header(groups, outbox, word_count, body_bytes)
    raise FrameError(_CUT_SHORT.format(len(outbox)))


def decode_behind_header(
    groups: Sequence[DeviceGroup],
    outbox: bytes | bytearray | memoryview,
    word_count: int,
    body_bytes: int,
) -> list[GroupResult]:
    """Cut a complete result whose header was read already.

    Raises:
        FrameError: As for ``decode_results``.
    """
    at = HEADER.size + WORD_BYTES * word_count
    end = at + body_bytes
    if end > len(outbox):
        raise FrameError(_CUT_SHORT.format(len(outbox)))
    if word_count < len(FEW_WORDS):
        words = FEW_WORDS[word_count].unpack_from(outbox, HEADER.size)
    else:
        words = struct.unpack_from(f"<{word_count}I", outbox, HEADER.size)
    try:
        if body_bytes <= GATHERED_MAX_BYTES:
            return _cut(groups, words, bytes(outbox[at:end]) if body_bytes else b"")
        return _owned(_cut(groups, words, memoryview(outbox)[at:end]))
    except IndexError as error:
        raise FrameError(f"a result frame is malformed: {error}") from error


def _owned(results: list[GroupResult]) -> list[GroupResult]:
    # replaces views of the outbox by bytes
    for group in results:
        for key, value in group.state.items():
            group.state[key] = None if value is None else bytes(value)
        for run in group.runs:
            if run.emits:
                run.emits = [(bytes(feature), bytes(encoding)) for feature, encoding in run.emits]
            if run.calls:
                run.calls = [(service, bytes(question)) for service, question in run.calls]
    return results


def _cut(groups: Sequence[DeviceGroup], words: Sequence[int], body: Any) -> list[GroupResult]:  # noqa: C901, PLR0912 - the hot loop
    # A slice beyond the body's end is short, never an error. All slices were whole if the
    # last one ends exactly at the body's end. A word beyond the last one is an IndexError.
    # Indices take half the time of an iterator.
    at = end = 0
    results = []
    for device_id, _, inputs in groups:
        runs = []
        returned = 0
        for _ in inputs:
            code = words[at]
            if code == RUN_RETURNED:
                returned += 1
                at += 1
                code = words[at]
            if code == RUN_SILENT:
                at += 1
                runs.append(_SILENT)
                continue
            count = words[at + 1]
            at += 2
            emits = []
            for _ in range(count):
                start, middle = end, end + words[at]
                end = middle + words[at + 1]
                at += 2
                emits.append((body[start:middle], body[middle:end]))
            logs: list[tuple[str, str]] = []
            if words[at]:
                at, end = _cut_lines(words, at, body, end, logs)
            else:
                at += 1
            if code == RUN_DONE:
                runs.append(RunResult(True, emits, logs))  # noqa: FBT003 - hot, keywords cost
                continue
            if code == RUN_CALLED:
                calls: list[tuple[str, bytes]] = []
                at, end = _cut_calls(words, at, body, end, calls)
                runs.append(RunResult(True, emits, logs, calls=calls))  # noqa: FBT003 - as above
                continue
            if code != RUN_FAILED or emits:
                raise FrameError(f"a result frame is malformed: run code {code}")
            start, middle = end, end + words[at]
            end = middle + words[at + 1]
            at += 2
            error, message = str(body[start:middle], *_TEXT), str(body[middle:end], *_TEXT)
            runs.append(RunResult(ok=False, logs=logs, error=error, message=message))
        state: dict[str, bytes | None] = {}
        if words[at]:
            at, end = _cut_changes(words, at, body, end, state)
        else:
            at += 1
        results.append(GroupResult(device_id, state, runs, returned))
    if end != len(body) or at != len(words):
        raise FrameError(
            f"a result frame does not add up: its words say {end} bytes, its body has {len(body)}"
        )
    return results


# The three functions below read a count at ``at``, cut that number of items from ``at`` and
# ``end`` on, and return the new ``at`` and ``end``.


def _cut_calls(
    words: Sequence[int], at: int, body: Any, end: int, calls: list[tuple[str, bytes]]
) -> tuple[int, int]:
    last = at + 2 * words[at]
    while at < last:
        start, middle = end, end + words[at + 1]
        end = middle + words[at + 2]
        at += 2
        calls.append((str(body[start:middle], *_TEXT), body[middle:end]))
    return at + 1, end


def _cut_lines(
    words: Sequence[int], at: int, body: Any, end: int, lines: list[tuple[str, str]]
) -> tuple[int, int]:
    last = at + 2 * words[at]
    while at < last:
        level, start, end = LEVELS[words[at + 1]], end, end + words[at + 2]
        at += 2
        lines.append((level, str(body[start:end], *_TEXT)))
    return at + 1, end


def _cut_changes(
    words: Sequence[int], at: int, body: Any, end: int, state: dict[str, bytes | None]
) -> tuple[int, int]:
    last = at + 2 * words[at]
    while at < last:
        start, middle = end, end + words[at + 1]
        key, size_bytes = str(body[start:middle], *_TEXT), words[at + 2]
        at += 2
        if size_bytes == DELETED:
            end, state[key] = middle, None
        else:
            end = middle + size_bytes
            state[key] = body[middle:end]
    return at + 1, end
