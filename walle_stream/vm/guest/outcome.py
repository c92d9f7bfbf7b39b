"""Writer of the results of runs in ``layout``: control words and the body's parts.

No function here trusts a script's objects: exceptions are described inside ``try``,
and texts are copied into plain ones before their length is taken.
"""

from types import TracebackType  # noqa: TC003 - the guest has no type checker
from typing import Final

from walle_stream.vm.guest.context import Context, Log, plain_text
from walle_stream.vm.guest.layout import (
    DELETED,
    RUN_CALLED,
    RUN_DONE,
    RUN_FAILED,
    RUN_RETURNED,
    RUN_SILENT,
)
from walle_stream.vm.guest.state import Overlay

MESSAGE_MAX_CHARACTERS: Final = 2_000
"""Longest description of a failed run."""

NAME_MAX_CHARACTERS: Final = 200
"""Longest class name of an exception."""


def write_success(
    words: list[int], parts: list[bytes], context: Context, *, has_value: bool
) -> None:
    """Append a successful run; ``has_value`` means that it returned a value."""
    if has_value:
        words.append(RUN_RETURNED)
    emitted, log = context._emitted_, context._log_
    if not emitted and log is None:
        words.append(RUN_SILENT)
        return
    calls = context._called_
    words += (RUN_CALLED if calls else RUN_DONE, len(emitted) // 2, *map(len, emitted))
    parts += emitted
    if log is None:
        words.append(0)
    else:
        _write_lines(words, parts, log)
    if calls:
        words += (len(calls) // 2, *map(len, calls))
        parts += calls


def write_failure(
    words: list[int], parts: list[bytes], log: Log | None, description: tuple[str, str]
) -> None:
    """Append a failed run with its log lines, error class and message."""
    words += (RUN_FAILED, 0)
    if log is None:
        words.append(0)
    else:
        _write_lines(words, parts, log)
    for text in description:
        data = _encode_text(text)
        words.append(len(data))
        parts.append(data)


def write_changes(words: list[int], parts: list[bytes], changes: Overlay) -> None:
    """Append a group's changes of its device's state."""
    words.append(len(changes))
    for key, data in changes.items():
        name = key.encode()
        parts.append(name)
        if data is None:
            words += (len(name), DELETED)
        else:
            words += (len(name), len(data))
            parts.append(data)


def describe(error: BaseException, file: str) -> tuple[str, str]:
    """Return an exception's class, and ``file:line: class: message`` with the script's line.

    Never raises, whatever the exception does.
    """
    try:
        line = 0
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == file:
                line = trace.tb_lineno
            trace = trace.tb_next
        name = plain_text(str(type(error).__name__))[:NAME_MAX_CHARACTERS]
    except BaseException:  # noqa: BLE001 - the exception is the script's own class
        return "BaseException", f"{file}: the script's exception could not be described"
    place = f"{file}:{line}" if line else file
    try:
        # always one line, because logs and lists of dead letters are read by lines
        text = " ".join(plain_text(str(error))[:MESSAGE_MAX_CHARACTERS].splitlines())
    except BaseException:  # noqa: BLE001 - its __str__ is the script's too
        text = "its text could not be made"
    return name, f"{place}: {name}: {text}"[:MESSAGE_MAX_CHARACTERS]


def _write_lines(words: list[int], parts: list[bytes], log: Log) -> None:
    lines = log._taken_()
    words.append(len(lines))
    for level, text in lines:
        data = _encode_text(text)
        words += (level, len(data))
        parts.append(data)


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
