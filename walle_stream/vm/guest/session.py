"""The guest's side of a VM: bind a task, then run batches of it.

The host writes a call into the inbox and enters ``call``. The guest runs every
group, writes the results behind the header of the outbox and, last of all, the
header with the call's number: the completion mark. Results that do not fit stay
here; the header says how much room they need and the host enters
``write_pending`` with a larger outbox. See ``layout`` for the bytes.

The script's body is executed in fresh globals for every run, so nothing that a
run leaves in a global, a default argument or a class is there for the next.
"""

import gc
import marshal
import struct
import sys
from os import read, write
from types import CodeType, ModuleType, TracebackType
from typing import Any, Final, NamedTuple

from walle_stream.vm.guest.context import Context, Limits, Log
from walle_stream.vm.guest.layout import (
    CALL,
    DELETED,
    HEADER,
    INBOX,
    MAGIC,
    PENDING,
    RING,
    STATUS_COMPLETE,
    STATUS_TOO_SMALL,
    WORD_BYTES,
)
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.restricted import REPLACED_NAMES, SCRIPT_MODULE, make_builtins
from walle_stream.vm.guest.state import State

MESSAGE_MAX_CHARACTERS: Final = 2_000
"""Longest description of a failed run."""

NAME_MAX_CHARACTERS: Final = 200
"""Longest class name of an exception."""

_GC_THRESHOLD: Final = 50_000


TASK_FACTOR: Final = 10
"""A task is out everywhere after so many times the strikes of one device."""

_TOOL_ID: Final = 4
_TOOL_NAME: Final = "walle"
# the session, and the text of a pending call: an exception from one has nowhere to go
_OWN_FILES: Final = ("<walle_guest", "<string>")


class RunStopped(BaseException):
    """Raised in a script that runs too long, at every line until it has ended."""


class _Program(NamedTuple):
    task: str
    file: str
    code: CodeType
    config: dict[str, Any] | bytes
    shares_globals: bool
    """The host found that no run can leave anything in the globals."""
    limits: Limits


_NO_LOG: Final = Log(0)
_NO_PROGRAM: Final = _Program(
    "", "", compile("", "", "exec"), b"", shares_globals=False, limits=(0, 0, 0, 0, 1)
)


class Session:
    """One VM's task and buffers. One thread at a time, the one that entered."""

    def __init__(self, inbox: memoryview, outbox: memoryview, pulse: memoryview) -> None:
        """Take the buffers.

        Args:
            inbox: Where the host writes calls.
            outbox: Where results go.
            pulse: One u64 for the number of the run at hand, 0 for none.
        """
        self._inbox = inbox
        self._outbox = outbox
        self._pulse = pulse.cast("Q")
        self._run_number = 0
        self._stopping = 0
        self._program = _NO_PROGRAM
        self._builtins: dict[str, Any] = {}
        self._shared: dict[str, Any] | None = None
        self._result: tuple[int, list[int], bytes] = (0, [], b"")

    def share(self, inbox: memoryview, outbox: memoryview) -> None:
        """Use other buffers from now on.

        Args:
            inbox: Where the host writes calls.
            outbox: Where results go.
        """
        self._inbox = inbox
        self._outbox = outbox

    def bind(self, packed: bytes) -> None:
        """Load a task and try its script's body once.

        The result frame is that of a call number 0 with one group of one run:
        what is wrong, if anything.

        Args:
            packed: Marshalled (task, file, code, config, imported modules,
                whether globals can be shared between runs, limits).
        """
        task, file, code, config, imports, shares, limits = marshal.loads(packed)  # noqa: S302 - made by the host
        self._program = _Program(task, file, code, _flat(config), shares, limits)
        self._shared = None
        self._builtins = make_builtins(make_importer(imports, REPLACED_NAMES))
        words: list[int] = []
        parts: list[bytes] = []
        log = Log(limits[2])
        namespace = self._namespace(log)
        self._pulse[0] = self._run_number = 1
        try:
            exec(code, namespace)
        except BaseException as error:  # noqa: BLE001 - whatever a script raises is its failure
            _write_failure(words, parts, log, self._described(error))
        else:
            if self._stopping:
                _write_failure(words, parts, log, self._described(RunStopped()))
            else:
                words += (1, 0, 0)
        self._pulse[0] = 0
        words.append(0)
        namespace.clear()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 20)
        self._finish(0, words, parts)

    def serve(self, wake: int, done: int) -> None:
        """Do what the host orders until it says to leave; the VM's thread stays here.

        Args:
            wake: Descriptor that the host rings.
            done: Descriptor to ring when an order was done.
        """
        inbox = self._inbox
        order_of, size = INBOX.unpack_from, INBOX.size
        while True:
            read(wake, 8)
            order, number = order_of(inbox)
            if order == CALL:
                self.call(number, inbox[size:])
            elif order == PENDING:
                self.write_pending()
            else:
                return
            write(done, RING)

    def call(self, number: int, packed: memoryview) -> None:  # noqa: C901 - the hot loop
        """Run a batch.

        Args:
            number: Of the call.
            packed: The groups, marshalled; may be longer.
        """
        groups = marshal.loads(packed)  # noqa: S302 - made by the host
        task, _, code, config, _, limits = self._program
        shared = self._shared_globals()
        words: list[int] = []
        parts: list[bytes] = []
        pulse, run_number = self._pulse, self._run_number
        strikes, stops = limits[4], 0
        is_task_out = is_out = False
        for device_id, state, runs in groups:
            stops_before, is_out = stops, is_task_out
            changes: dict[str, bytes | None] = {}
            for position, clock_ms, given in runs:
                overlay: dict[str, bytes | None] = {}
                context = Context(
                    device_id, task, State(state, overlay), position, clock_ms, config, limits
                )
                if is_out:
                    # without a VM's call for each: a batch of loops must not take an hour
                    _write_failure(words, parts, _NO_LOG, self._quarantined(device_id))
                    run_number += 1
                    continue
                namespace = shared
                pulse[0] = run_number = run_number + 1
                try:
                    if namespace is None:
                        namespace = self._namespace(context.log)
                        exec(code, namespace)
                    namespace["run"](context, Page(given))
                except BaseException as error:  # noqa: BLE001 - a failed run, never more
                    stops += bool(self._stopping)
                    _write_failure(words, parts, context.log, self._described(error))
                else:
                    if self._stopping:  # the script caught what stopped it
                        stops += 1
                        failure = self._described(RunStopped())
                        _write_failure(words, parts, context.log, failure)
                    else:
                        _write_success(words, parts, context)
                        changes.update(overlay)
                        if None in overlay.values():
                            _take_over(state, overlay)
                        else:
                            state.update(overlay)
                if stops != stops_before:
                    is_task_out = stops >= strikes * TASK_FACTOR
                    is_out = is_task_out or stops - stops_before >= strikes
                if shared is None and namespace is not None:
                    # functions and globals hold each other: without this only the
                    # garbage collector would free a run
                    namespace.clear()
            _write_changes(words, parts, changes)
        pulse[0] = 0
        self._run_number = run_number
        self._finish(number, words, parts)

    def stop(self) -> None:
        """Stop the run at hand; made by the host as a pending call of this interpreter."""
        number = self._pulse[0]
        if number and not self._stopping:
            self._stopping = number
            monitoring = sys.monitoring
            monitoring.use_tool_id(_TOOL_ID, _TOOL_NAME)
            events = monitoring.events
            for event in (events.LINE, events.JUMP, events.PY_START):
                monitoring.register_callback(_TOOL_ID, event, self._on_event)
            monitoring.set_events(_TOOL_ID, events.LINE | events.JUMP | events.PY_START)

    def _on_event(self, code: CodeType, *_: object) -> None:
        if self._pulse[0] != self._stopping:
            self._unstop()  # the run had ended when the host asked
        elif not code.co_filename.startswith(_OWN_FILES):
            raise RunStopped

    def _unstop(self) -> None:
        # events end first: one between these lines must still find a run to stop
        sys.monitoring.set_events(_TOOL_ID, 0)
        sys.monitoring.free_tool_id(_TOOL_ID)
        self._stopping = 0

    def _quarantined(self, device_id: str) -> tuple[str, str]:
        program = self._program
        text = f"task {program.task!r} is quarantined on device {device_id!r}: it had to be stopped"
        return "Quarantined", f"{program.file}: {text} too often; correct it and restart"

    def _described(self, error: BaseException) -> tuple[str, str]:
        if not self._stopping:
            return describe(error, self._program.file)
        self._unstop()
        name, text = describe(error, self._program.file)
        place = text.partition(f": {name}")[0] if isinstance(error, RunStopped) else ""
        limit_s = self._program.limits[3] / 1000
        text = f"took longer than {limit_s:g} s (limits.wallTime) and was stopped"
        return "RunStopped", f"{place or self._program.file}: RunStopped: {text}"

    def _shared_globals(self) -> dict[str, Any] | None:
        # executed in the first call and kept: its body raised nothing when it was bound
        if self._shared is None and self._program.shares_globals:
            namespace = self._namespace(Log(0))
            exec(self._program.code, namespace)
            self._shared = namespace
        return self._shared

    def write_pending(self) -> None:
        """Write the last result, or how much room it needs."""
        number, words, body = self._result
        words_bytes = WORD_BYTES * len(words)
        size_bytes = HEADER.size + words_bytes + len(body)
        outbox = self._outbox
        status = STATUS_TOO_SMALL
        if size_bytes <= len(outbox):
            status = STATUS_COMPLETE
            struct.pack_into(f"<{len(words)}I", outbox, HEADER.size, *words)
            outbox[HEADER.size + words_bytes : size_bytes] = body
            self._result = (0, [], b"")
        HEADER.pack_into(outbox, 0, MAGIC, status, number, len(words), len(body))

    def _finish(self, number: int, words: list[int], parts: list[bytes]) -> None:
        self._result = (number, words, b"".join(parts))
        self.write_pending()

    def _namespace(self, log: Log) -> dict[str, Any]:
        # dataclasses looks a class's module up by name
        module = sys.modules[SCRIPT_MODULE] = ModuleType(SCRIPT_MODULE)
        namespace = module.__dict__
        namespace["__builtins__"] = self._builtins
        namespace["print"] = log.print
        return namespace


def _flat(packed: bytes) -> dict[str, Any] | bytes:
    # a copy of a flat dict is as good as unmarshalling it anew, and ten times as fast
    config: dict[str, Any] = marshal.loads(packed)  # noqa: S302 - made by the host
    return packed if any(isinstance(v, (dict, list)) for v in config.values()) else config


def describe(error: BaseException, file: str) -> tuple[str, str]:
    """Put an exception of a script into words.

    Args:
        error: What the script raised.
        file: The script's file name.

    Returns:
        The class, and one text ``file:line: class: message`` with the line of
        the script that was running; never raises, whatever the exception does.
    """
    try:
        line = 0
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == file:
                line = trace.tb_lineno
            trace = trace.tb_next
        name = str(type(error).__name__)[:NAME_MAX_CHARACTERS]
    except BaseException:  # noqa: BLE001 - the exception is the script's own class
        return "BaseException", f"{file}: the script's exception could not be described"
    place = f"{file}:{line}" if line else file
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - its __str__ is the script's too
        text = "its text could not be made"
    return name, f"{place}: {name}: {text}"[:MESSAGE_MAX_CHARACTERS]


def _take_over(state: dict[str, bytes], overlay: dict[str, bytes | None]) -> None:
    for key, data in overlay.items():
        if data is None:
            state.pop(key, None)
        else:
            state[key] = data


def _write_changes(words: list[int], parts: list[bytes], changes: dict[str, bytes | None]) -> None:
    words.append(len(changes))
    for key, data in changes.items():
        name = key.encode()
        parts.append(name)
        if data is None:
            words += (len(name), DELETED)
        else:
            words += (len(name), len(data))
            parts.append(data)


def _write_success(words: list[int], parts: list[bytes], context: Context) -> None:
    emitted, lines = context.taken()
    words += (1, len(emitted) // 2, *map(len, emitted), len(lines))
    parts += emitted
    if lines:
        _write_lines(words, parts, lines)


def _write_failure(
    words: list[int], parts: list[bytes], log: Log, description: tuple[str, str]
) -> None:
    lines = log.taken()
    words += (0, 0, len(lines))
    _write_lines(words, parts, lines)
    for text in description:
        data = _encode_text(text)
        words.append(len(data))
        parts.append(data)


def _write_lines(words: list[int], parts: list[bytes], lines: list[tuple[int, str]]) -> None:
    for level, text in lines:
        data = _encode_text(text)
        words += (level, len(data))
        parts.append(data)


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
