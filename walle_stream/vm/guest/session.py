"""The guest's side of a VM: bind a task, then run batches of it.

The host writes an order into the inbox; the guest runs every group, writes the
results behind the header of the outbox and, last of all, the order's number:
the completion mark. Results that do not fit stay here; the header says how much
room they need and the host gives a larger outbox. See ``layout`` for the bytes.

The script's body is executed in fresh globals for every run, so nothing that a
run leaves in a global, a default argument or a class is there for the next.
"""

import gc
import marshal
import sys
from array import array
from os import read, write
from time import monotonic
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

from walle_stream.vm.guest.auditing import Auditor
from walle_stream.vm.guest.context import Context, Limits, Log, bind_context
from walle_stream.vm.guest.importer import import_from_package
from walle_stream.vm.guest.layout import (
    ANSWER_HEAD,
    CALL,
    FEW_WORDS,
    GATHERED_MAX_BYTES,
    HEADER,
    INBOX,
    LONGEST_PAUSE,
    MAGIC,
    NUMBER,
    PENDING,
    RING,
    RUN_SILENT,
    STATUS_ASKS,
    STATUS_COMPLETE,
    STATUS_NEXT,
    STATUS_TOO_SMALL,
    WORD_BYTES,
)
from walle_stream.vm.guest.migration import VERSION_KEY, migrate, take_version
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.outcome import describe, write_changes, write_failure, write_success
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.reading import SCRIPT_MODULE
from walle_stream.vm.guest.reply import Reply, ReplyInput
from walle_stream.vm.guest.restricted import REPLACED_NAMES, make_builtins
from walle_stream.vm.guest.state import Overlay, State, check_size, merge, state_bytes
from walle_stream.vm.guest.stopping import RunStopped, StepsExceeded, Stopper

TASK_FACTOR: Final = 10
"""A task is out everywhere after so many times the strikes of one device."""

_ASKING_FACTOR: Final = 10  # a run's questions take so many wall times, at most
_GC_THRESHOLD: Final = 50_000
_MARKS: Final = {
    status: int.from_bytes(MAGIC, "little") | status << 32
    for status in (STATUS_COMPLETE, STATUS_TOO_SMALL, STATUS_ASKS, STATUS_NEXT)
}


class _Program(NamedTuple):
    task: str
    file: str
    code: CodeType
    context: type[Context]
    shares_globals: bool
    """The host found that no run can leave anything in the globals."""
    limits: Limits
    state_version: int


_NO_RESULT: Final[tuple[int, list[int], list[bytes], int]] = (0, [], [], 0)
_NO_LIMITS: Final[Limits] = (0, 0, 0, 0, 1, 0, 0)
_NO_PROGRAM: Final = _Program(
    "",
    "",
    compile("", "", "exec"),
    Context,
    shares_globals=False,
    limits=_NO_LIMITS,
    state_version=1,
)


class Session:
    """One VM's task and buffers. One thread at a time, the one that entered."""

    def __init__(self, inbox: memoryview, outbox: memoryview, pulse: memoryview) -> None:
        """Take the buffers.

        Args:
            inbox: Where the host writes orders.
            outbox: Where results go.
            pulse: One u64 for the number of the run at hand, 0 for none.
        """
        self._pulse = pulse.cast("Q")
        self._run_number = 0
        self._order_number = 0
        self._asking = (0, 0.0)  # the last run that asked, and seconds that it waited
        self._program = _NO_PROGRAM
        self._stopper = Stopper(self._pulse, 0, _NO_PROGRAM.code)
        self._builtins: dict[str, Any] = {}
        self._shared: dict[str, Any] | None = None
        self._auditor = Auditor(self._pulse)
        self._result = _NO_RESULT
        self._was_stopped = False  # the run that was described last
        self._wake = self._done = -1
        self.share(inbox, outbox)

    def share(self, inbox: memoryview, outbox: memoryview) -> None:
        """Use other buffers from now on.

        Args:
            inbox: Where the host writes orders.
            outbox: Where results go.
        """
        self._inbox = inbox
        self._outbox = outbox
        self._orders = inbox[: INBOX.size].cast("Q")
        self._packed = inbox[INBOX.size :]
        self._heads = outbox[: HEADER.size].cast("Q")

    def bind(self, packed: bytes) -> None:
        """Load a task and try its script's body once.

        The result frame is that of a call number 0 with one group of one run:
        what is wrong, if anything.

        Args:
            packed: Marshalled (task, file, code, config, imported modules,
                whether globals can be shared between runs, limits, state
                version, resources, what a package brings to import: None, or its
                modules and the runtime's names).
        """
        given = marshal.loads(packed)  # noqa: S302 - made by the host
        task, file, code, config, imports, shares, limits, version, resources, package = given
        if package is not None:
            import_from_package(*package)
        context = bind_context(task, _flat(config), limits, resources, self.ask)
        self._program = _Program(task, file, code, context, shares, limits, version)
        self._shared = None
        self._builtins = make_builtins(make_importer(imports, REPLACED_NAMES, self._auditor))
        stopper = self._stopper = Stopper(self._pulse, limits[5], code)
        words: list[int] = []
        parts: list[bytes] = []
        log = Log(limits[2])
        namespace = self._namespace(log)
        self._auditor.begin()
        self._pulse[0] = self._run_number = 1
        try:
            exec(code, namespace)
            stopper.check()
            _check_run(namespace)
        except BaseException as error:  # noqa: BLE001 - whatever a script raises is its failure
            write_failure(words, parts, log, self._described(error))
        else:
            words.append(RUN_SILENT)
        self._pulse[0] = 0
        words.append(0)
        namespace.clear()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 20)
        self._finish(0, words, parts)

    def serve(self, wake: int, done: int, spins: int) -> None:
        """Do what the host orders until it says to leave; the VM's thread stays here.

        A host that calls often finds the guest looking: waking a thread that
        sleeps costs more than a whole short call. Looking that finds nothing
        is done ever more seldom.

        Args:
            wake: Descriptor that the host rings.
            done: Descriptor to ring when an order was done.
            spins: How often to look for an order before sleeping.
        """
        packed, orders, last = self._packed, self._orders, self._order_number
        self._wake, self._done = wake, done
        looks = range(spins)
        pause = paused = 0
        while True:
            if paused:
                paused -= 1
            else:
                for _ in looks:
                    if orders[NUMBER] != last:
                        pause = 0
                        break
                else:
                    pause = paused = min(2 * pause + 1, LONGEST_PAUSE)
            while orders[NUMBER] == last:
                read(wake, 8)
            self._order_number = orders[NUMBER]
            order = orders[0]
            if order == CALL:
                self.call(packed)
            elif order == PENDING:
                self.write_pending()
            else:
                return
            last = self._order_number  # runs that asked were answered by orders of their own
            write(done, RING)

    def ask(self, request: bytes) -> bytes:
        """Ask the host something in the middle of a run; blocks until it answers.

        The time that takes is the host's: it does not count as the run's.

        Args:
            request: At most 256 MiB.

        Returns:
            The answer.

        Raises:
            RuntimeError: The host refused; its text says why. Or the run has asked
                for ten times its wall time.
        """
        pulse, outbox, heads = self._pulse, self._outbox, self._heads
        stopper, number = self._stopper, pulse[0]
        waited_s = self._asking[1] if self._asking[0] == number else 0.0
        if waited_s * 1000 >= self._program.limits[3] * _ASKING_FACTOR:
            raise RuntimeError(f"a run may ask for {_ASKING_FACTOR} times limits.wallTime")
        start_s = monotonic()
        stopper.paused, pulse[0] = number, 0
        room = len(outbox) - HEADER.size
        for at in range(0, len(request), room):
            part = request[at : at + room]
            outbox[HEADER.size : HEADER.size + len(part)] = part
            heads[2], heads[3] = len(request) - at, len(part)
            self._exchange(STATUS_ASKS)
        parts: list[bytes] = []
        while True:
            left, size, has_failed = ANSWER_HEAD.unpack_from(self._packed)
            parts.append(bytes(self._packed[ANSWER_HEAD.size : ANSWER_HEAD.size + size]))
            if left <= size:
                break
            heads[2] = heads[3] = 0
            self._exchange(STATUS_NEXT)
        pulse[0], stopper.paused = number, 0
        self._asking = (number, waited_s + monotonic() - start_s)
        answer = b"".join(parts)
        if has_failed:
            raise RuntimeError(answer.decode("utf-8", "replace"))
        return answer

    def _exchange(self, status: int) -> None:
        # tell the host, sleep until its next order
        heads, orders, last = self._heads, self._orders, self._order_number
        heads[0] = _MARKS[status]
        heads[NUMBER] = last
        write(self._done, RING)
        while orders[NUMBER] == last:
            read(self._wake, 8)
        self._order_number = orders[NUMBER]

    def call(self, packed: memoryview) -> None:  # noqa: C901, PLR0912, PLR0915 - the hot loop
        """Run a batch.

        Args:
            packed: The groups, marshalled; may be longer.
        """
        groups = marshal.loads(packed)  # noqa: S302 - made by the host
        code, make_context, limits = self._program.code, self._program.context, self._program.limits
        strikes, counts_steps, max_state_bytes = limits[4:7]
        state_version = self._program.state_version
        shared = self._shared_globals()
        run = shared["run"] if shared else _run_nothing
        words: list[int] = []
        parts: list[bytes] = []
        pulse, run_number, stopper = self._pulse, self._run_number, self._stopper
        stops = 0
        is_task_out = is_out = False
        for device_id, state, runs in groups:
            stops_before, is_out = stops, is_task_out
            changes: Overlay = {}
            held_bytes = -1
            old_version = left_version = state_version
            if state and (state_version != 1 or VERSION_KEY in state):
                old_version = left_version = take_version(state)
            for position, clock_ms, given in runs:
                run_number += 1
                if is_out:
                    # without a VM's call for each: a batch of loops must not take an hour
                    write_failure(words, parts, None, self._quarantined(device_id))
                    continue
                view = State(state)
                context = make_context(device_id, position, clock_ms, view)
                namespace = shared
                pulse[0] = run_number
                try:
                    if counts_steps:
                        stopper.begin_run()
                    if namespace is None:
                        namespace = self._namespace(context.log)
                        exec(code, namespace)
                        run = namespace["run"]
                    if old_version != state_version and state:
                        migrate(view, namespace.get("migrate"), state_version, old_version)
                    if given.__class__ is list:
                        _take_reply(namespace, context, given)
                    else:
                        run(context, Page(given))
                    if shared is None:
                        # functions and globals hold each other: without this only the garbage
                        # collector would free a run, and what ends with it is part of it
                        namespace.clear()
                    if stopper.stopping:
                        stopper.check()
                    overlay = view._overlay_
                    if overlay:
                        if held_bytes < 0:
                            held_bytes = state_bytes(state)
                        held_bytes += view._written_bytes_
                        if held_bytes > max_state_bytes:
                            held_bytes = -1
                            check_size(state, overlay, max_state_bytes)
                except BaseException as error:  # noqa: BLE001 - a failed run, never more
                    log = context._log_
                    write_failure(words, parts, log, self._described(error))
                    if self._was_stopped:
                        stops += 1
                        is_task_out = stops >= strikes * TASK_FACTOR
                        is_out = is_task_out or stops - stops_before >= strikes
                else:
                    if context._emitted_ or context._log_ is not None:
                        write_success(words, parts, context)
                    else:
                        words.append(RUN_SILENT)
                    if overlay:
                        changes.update(overlay)
                        merge(state, overlay)
                        old_version = state_version
                if shared is None and namespace:
                    namespace.clear()  # of a run that failed
            if changes:
                if state_version != 1 or left_version != 1:
                    # layout 1 has no number
                    changes[VERSION_KEY] = b"%d" % state_version if state_version != 1 else None
                write_changes(words, parts, changes)
            else:
                words.append(0)
        pulse[0] = 0
        self._run_number = run_number
        self._finish(self._order_number, words, parts)

    def stop(self, *, for_memory: bool = False) -> None:
        """Stop the run at hand; made by the host as a pending call of this interpreter.

        Args:
            for_memory: Why: the process has too much, or the run takes too long.
        """
        self._stopper.stop(for_memory=for_memory)

    def write_pending(self) -> None:
        """Write the last result, or how much room it needs."""
        self._result = (self._order_number, *self._result[1:])
        self._write()

    def _write(self) -> None:
        number, words, parts, body_bytes = self._result
        count = len(words)
        at = HEADER.size + WORD_BYTES * count
        end = at + body_bytes
        outbox, heads = self._outbox, self._heads
        status = STATUS_TOO_SMALL
        if end <= len(outbox):
            status = STATUS_COMPLETE
            if count < len(FEW_WORDS):
                FEW_WORDS[count].pack_into(outbox, HEADER.size, *words)
            else:
                outbox[HEADER.size : at] = array("I", words).tobytes()
            if 0 < body_bytes <= GATHERED_MAX_BYTES:
                outbox[at:end] = b"".join(parts)
            elif parts:
                # not twice through the memory
                for part in parts:
                    begin, at = at, at + len(part)
                    outbox[begin:at] = part
            self._result = _NO_RESULT
        heads[0] = _MARKS[status]
        heads[2] = count
        heads[3] = body_bytes
        heads[NUMBER] = number

    def _finish(self, number: int, words: list[int], parts: list[bytes]) -> None:
        self._result = (number, words, parts, sum(map(len, parts)))
        self._write()

    def _quarantined(self, device_id: str) -> tuple[str, str]:
        program = self._program
        text = f"task {program.task!r} is quarantined on device {device_id!r}: it had to be stopped"
        return "Quarantined", f"{program.file}: {text} too often; correct it and restart"

    def _described(self, error: BaseException) -> tuple[str, str]:
        program, stopper = self._program, self._stopper
        is_ours = isinstance(error, (RunStopped, StepsExceeded))
        # not while every line raises; what a script raised makes its text by the script's
        # own code, which may have to be stopped, too
        self._was_stopped = is_ours
        was_told = is_ours and stopper.release()
        name, text = describe(error, program.file)
        if not is_ours:
            self._was_stopped = stopper.stopping != 0
            if not self._was_stopped:
                return name, text
            was_told = stopper.release()
        place = text.partition(f": {name}")[0] or program.file
        if was_told and stopper.is_for_memory:
            text = "ran when its process had too much memory (runtime.memory)"
            return "RunStopped", f"{place}: RunStopped: {text} and was stopped"
        if was_told:
            text = f"took longer than {program.limits[3] / 1000:g} s (limits.wallTime)"
            return "RunStopped", f"{place}: RunStopped: {text} and was stopped"
        text = f"made more than {program.limits[5]} steps (limits.steps) and was stopped"
        return "StepsExceeded", f"{place}: StepsExceeded: {text}"

    def _shared_globals(self) -> dict[str, Any] | None:
        # executed in the first call and kept: its body raised nothing when it was bound
        if self._shared is None and self._program.shares_globals:
            namespace = self._namespace(Log(0))
            exec(self._program.code, namespace)
            self._shared = namespace
        return self._shared

    def _namespace(self, log: Log) -> dict[str, Any]:
        # dataclasses looks a class's module up by name
        module = sys.modules[SCRIPT_MODULE] = ModuleType(SCRIPT_MODULE)
        namespace = module.__dict__
        namespace["__builtins__"] = self._builtins
        namespace["print"] = log.print
        return namespace


def _check_run(namespace: dict[str, Any]) -> None:
    # the gate saw a function of that name, not what became of it
    if not callable(namespace.get("run")):
        raise TypeError("'run' is no function any more when the script's body is done")


def _take_reply(namespace: dict[str, Any], context: Context, given: ReplyInput) -> None:
    on_reply = namespace.get("on_reply")
    if on_reply is not None:
        on_reply(context, Reply(given))


def _run_nothing(_context: Context, _page: Page) -> None:
    pass  # until a run's own globals are made


def _flat(packed: bytes) -> dict[str, Any] | bytes:
    # a copy of a flat dict is as good as unmarshalling it anew, and ten times as fast
    config: dict[str, Any] = marshal.loads(packed)  # noqa: S302 - made by the host
    return packed if any(isinstance(v, (dict, list)) for v in config.values()) else config
