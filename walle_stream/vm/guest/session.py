"""The guest's side of a VM: it binds a task, then runs batches of it.

``exchange`` brings a call's groups and takes its results to the host.

The script's body is executed in new globals for every run. So a run cannot leave
data in a global, a default argument or a class for the next run.
"""

import gc
import marshal
import sys
from collections.abc import Iterable
from time import monotonic
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

from walle_stream.vm.guest import auditing
from walle_stream.vm.guest.context import Context, Limits, Log, bind_context
from walle_stream.vm.guest.deferral import Deferral
from walle_stream.vm.guest.exchange import Exchange
from walle_stream.vm.guest.layout import REPEATED, RUN_SILENT
from walle_stream.vm.guest.message import Message
from walle_stream.vm.guest.migration import VERSION_KEY, migrate, take_version
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.outcome import describe, write_changes, write_failure, write_success
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.reading import SCRIPT_MODULE
from walle_stream.vm.guest.reply import Reply
from walle_stream.vm.guest.restricted import REPLACED_NAMES, make_builtins
from walle_stream.vm.guest.sealing import seal_imports
from walle_stream.vm.guest.state import Overlay, State, grown_bytes, merge
from walle_stream.vm.guest.stopping import RunStopped, StepsExceeded, Stopper

TASK_FACTOR: Final = 10
"""A task is quarantined everywhere after this multiple of one device's strikes."""

_ASKING_FACTOR: Final = 10  # most time for a run's requests, in multiples of its wall time
_GC_THRESHOLD: Final = 50_000
# function and class for an input from the cloud, by its number of values
_FROM_CLOUD: Final = {4: ("on_reply", Reply), 3: ("on_message", Message)}


class _Program(NamedTuple):
    task: str
    file: str
    code: CodeType
    context: type[Context]
    shares_globals: bool
    """Whether runs share globals, because the host found that no run can change them."""
    limits: Limits
    state_version: int


class Session(Exchange):
    """Task and buffers of one VM, for the thread that entered the interpreter."""

    _program: _Program

    def __init__(
        self,
        inbox: memoryview,
        outbox: memoryview,
        pulse: memoryview,
        allowed: Iterable[str] = (),
    ) -> None:
        """Take the buffers.

        ``pulse`` is one u64: the number of the current run, 0 for none. ``allowed`` are audit
        events that the session's server needs later.
        """
        super().__init__(inbox, outbox)
        self._pulse = pulse.cast("Q")
        self._run_number = 0
        self._asking = (0, 0.0)  # the last run with a request, and the seconds that it waited
        self._waited_s = 0.0  # for tensors of completed runs of the call
        self._call: bytes | None = None  # a copy of the call's input
        self._has_asked = False  # whether an answer overwrote the input in the inbox
        self._deferral = Deferral(self.ask, self._ask_for_all, self._keep_call, self._pulse)
        self._stopper = Stopper(self._pulse)
        self._builtins: dict[str, Any] = {}
        self._shared: dict[str, Any] | None = None
        self._own_globals: dict[str, Any] = {}  # globals of a run that shares none
        self._allowed = tuple(allowed)
        self._was_stopped = False  # whether the last described run was stopped
        self._stops = self._device_stops = 0  # stopped runs of the call, and of one group

    def bind(self, packed: bytes) -> None:
        """Load ``CompiledProgram.packed`` and try its script's body once.

        The result frame is that of a call number 0 with one group of one run. It
        holds the error, if there is one.
        """
        program = marshal.loads(packed)  # noqa: S302 - made by the host, with the task's code
        task, file, code, config, imports, shares, limits, version, resources = program
        context = bind_context(task, _flat(config), limits, resources, self._deferral)
        self._program = _Program(task, file, code, context, shares, limits, version)
        self._shared = None
        self._builtins = make_builtins(make_importer(imports, REPLACED_NAMES))
        stopper = self._stopper = Stopper(self._pulse, limits[5], code)
        words: list[int] = []
        parts: list[bytes] = []
        log = Log(limits[2])
        namespace = self._namespace(log)
        self._begin_audit()
        self._pulse[0] = self._run_number = 1
        try:
            exec(code, namespace)
            stopper.check()
            _check_run(namespace)
        except BaseException as error:  # noqa: BLE001 - any exception of a script is its failure
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

    def ask(self, request: bytes) -> bytes:
        """Send the host a request during a run; blocks until the answer.

        The host's time does not count as the run's.

        Raises:
            RuntimeError: The host refused, for the reason in the text, or the run
                has waited for ten times its wall time.
        """
        pulse, stopper = self._pulse, self._stopper
        number = pulse[0]
        waited_s = self._asking[1] if self._asking[0] == number else 0.0
        if waited_s * 1000 >= self._program.limits[3] * _ASKING_FACTOR:
            raise RuntimeError(
                f"a run may wait for the host for {_ASKING_FACTOR} times limits.wallTime"
            )
        start_s = monotonic()
        stopper.paused, pulse[0] = number, 0
        has_failed, answer = self._cross(request)
        pulse[0], stopper.paused = number, 0
        self._asking = (number, waited_s + monotonic() - start_s)
        if has_failed:
            raise RuntimeError(answer.decode("utf-8", "replace"))
        return answer

    def _begin_audit(self) -> None:
        # permanent, for the whole interpreter
        seal_imports()
        auditing.begin(self._allowed)

    def _ask_for_all(self, request: bytes, run_count: int) -> bytes:
        # for completed runs of this call, so there is no current run
        if self._waited_s * 1000 >= self._program.limits[3] * _ASKING_FACTOR * run_count:
            raise RuntimeError("the call has waited for the host for too long")
        self._pulse[0] = 0
        start_s = monotonic()
        has_failed, answer = self._cross(request)
        self._waited_s += monotonic() - start_s
        if has_failed:
            raise RuntimeError(answer.decode("utf-8", "replace"))
        return answer

    def _cross(self, request: bytes) -> tuple[bool, bytes]:
        if self._deferral.is_likely:
            self._keep_call()
        self._has_asked = True
        return self.exchange(request)

    def _keep_call(self) -> bool:
        # an answer overwrites the call's input
        if self._call is None and not self._has_asked:
            self._call = bytes(self._packed)
        return self._call is not None

    def call(self, packed: memoryview) -> None:
        """Run a batch."""
        deferral = self._deferral
        deferral.is_eager = False
        self._call, self._has_asked = None, False
        words: list[int] = []
        parts: list[bytes] = []
        run_number = self._run_all(packed, self._run_number, words, parts)
        self._pulse[0] = 0
        if deferral.is_used:
            if not deferral.finish(words, parts) and self._call is not None:
                words, parts = [], []
                deferral.begin(is_eager=True)
                run_number = self._run_all(self._call, self._run_number | REPEATED, words, parts)
                self._pulse[0] = 0
            deferral.begin(is_eager=False)
            self._call, self._waited_s = None, 0.0
        self._run_number = run_number & ~REPEATED
        self._finish(self._order_number, words, parts)

    def _run_all(  # noqa: C901, PLR0912 - the hot loop
        self, packed: memoryview | bytes, run_number: int, words: list[int], parts: list[bytes]
    ) -> int:
        # returns the number of the last run; ends early if the call must be repeated
        groups = marshal.loads(packed, allow_code=False)  # noqa: S302 - made by the host
        program, shared = self._program, self._shared_globals()
        make_context, state_version = program.context, program.state_version
        strikes, counts_steps, max_state_bytes = program.limits[4:7]
        run: Any = shared and shared["run"]
        pulse, stopper, deferral = self._pulse, self._stopper, self._deferral
        self._stops, waiting = 0, deferral.features  # empty after runs without tensors to emit
        for device_id, state, runs in groups:
            self._device_stops, is_out = 0, self._stops >= strikes * TASK_FACTOR
            changes: Overlay = {}
            held_bytes, old_version, left_version = -1, state_version, state_version
            if state and (state_version != 1 or VERSION_KEY in state):
                old_version = left_version = take_version(state)
            for position, clock_ms, subject in runs:
                run_number += 1
                if is_out:
                    write_failure(words, parts, None, self._quarantined(device_id))
                    continue
                view = State(state)
                context = make_context(device_id, position, clock_ms, view)
                pulse[0] = run_number
                try:
                    if counts_steps:
                        stopper.begin_run()
                    if shared is None or old_version != state_version or subject.__class__ is list:
                        has_value = self._run_apart(context, view, subject, old_version)
                    else:
                        has_value = run(context, Page(subject)) is not None
                    if stopper.stopping:
                        stopper.check()
                    if overlay := view._overlay_:
                        held_bytes = grown_bytes(state, view, held_bytes, max_state_bytes)
                except BaseException as error:  # noqa: BLE001 - only the run fails
                    is_out = self._fail(words, parts, context, error)
                else:
                    if waiting:
                        deferral.place = (len(words) + 2 + has_value, len(parts))
                    if has_value or context._emitted_ or context._log_ is not None:
                        write_success(words, parts, context, has_value=has_value)
                    else:
                        words.append(RUN_SILENT)
                    if overlay:
                        changes.update(overlay)
                        merge(state, overlay)
                        old_version = state_version
                if waiting and not deferral.end_run(context, words, parts):
                    return run_number
            if not changes:
                words.append(0)
                continue
            if state_version != 1 or left_version != 1:
                # layout 1 has no number
                changes[VERSION_KEY] = b"%d" % state_version if state_version != 1 else None
            write_changes(words, parts, changes)
        return run_number

    def _run_apart(self, context: Context, view: State, subject: Any, old_version: int) -> bool:
        # a run with its own globals, an older state, a reply or a message; returns whether
        # it returned a value
        program, namespace = self._program, self._shared
        if namespace is None:
            namespace = self._own_globals = self._namespace(context.log)
            exec(program.code, namespace)
        if old_version != program.state_version and view._base_:
            migrate(view, namespace.get("migrate"), program.state_version, old_version)
        if subject.__class__ is not list:
            has_value = namespace["run"](context, Page(subject)) is not None
        else:
            name, kind = _FROM_CLOUD[len(subject)]
            function = namespace.get(name)
            has_value = function is not None and function(context, kind(subject)) is not None
        # functions and globals refer to each other: without this, only the garbage collector
        # would free them, but destructors must run within their own run
        self._own_globals.clear()
        return has_value

    def _fail(
        self, words: list[int], parts: list[bytes], context: Context, error: BaseException
    ) -> bool:
        # returns whether the device has no further runs in this call: a batch of endless loops
        # must not take an hour, and the host gets all results only at its end
        if isinstance(error, MemoryError) and self._deferral.is_likely:
            self._deferral.has_failed = True  # waiting tensors may have used the memory
        write_failure(words, parts, context._log_, self._described(error))
        self._stops += self._was_stopped
        self._device_stops += self._was_stopped
        self._own_globals.clear()  # only after the exception was described
        strikes = self._program.limits[4]
        return self._device_stops >= strikes or self._stops >= strikes * TASK_FACTOR

    def stop(self, *, for_memory: bool = False) -> None:
        """Stop the current run for its time or its memory; called by a pending call."""
        self._stopper.stop(for_memory=for_memory)

    def _quarantined(self, device_id: str) -> tuple[str, str]:
        program = self._program
        text = f"task {program.task!r} is quarantined on device {device_id!r}: it had to be stopped"
        return "Quarantined", f"{program.file}: {text} too often; correct it and restart"

    def _described(self, error: BaseException) -> tuple[str, str]:
        program, stopper = self._program, self._stopper
        is_ours = isinstance(error, (RunStopped, StepsExceeded))
        # describe one of our exceptions only after release, when lines no longer raise; the
        # text of a script's exception comes from its own code, which may have to be stopped
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
            text = "ran while its process used too much memory (runtime.memory)"
            return "RunStopped", f"{place}: RunStopped: {text} and was stopped"
        if was_told:
            text = f"took longer than {program.limits[3] / 1000:g} s (limits.wallTime)"
            return "RunStopped", f"{place}: RunStopped: {text} and was stopped"
        text = f"made more than {program.limits[5]} steps (limits.steps) and was stopped"
        return "StepsExceeded", f"{place}: StepsExceeded: {text}"

    def _shared_globals(self) -> dict[str, Any] | None:
        # executed at the first call and kept; the body raised nothing at the binding
        if self._shared is None and self._program.shares_globals:
            namespace = self._namespace(Log(0))
            exec(self._program.code, namespace)
            self._shared = namespace
        return self._shared

    def _namespace(self, log: Log) -> dict[str, Any]:
        # dataclasses looks up a class's module by name
        module = sys.modules[SCRIPT_MODULE] = ModuleType(SCRIPT_MODULE)
        namespace = module.__dict__
        namespace["__builtins__"] = self._builtins
        namespace["print"] = log.print
        return namespace


def _check_run(namespace: dict[str, Any]) -> None:
    # the gate saw a function of that name, but the body may have replaced it
    if not callable(namespace.get("run")):
        raise TypeError("'run' is not a function after the script's body has run")


def _flat(packed: bytes) -> dict[str, Any] | bytes:
    # copying a flat dict equals unmarshalling it again, and is ten times as fast
    config: dict[str, Any] = marshal.loads(packed, allow_code=False)  # noqa: S302 - made by the host
    return packed if any(isinstance(v, (dict, list)) for v in config.values()) else config
