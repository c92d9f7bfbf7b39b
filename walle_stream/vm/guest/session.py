"""The guest's side of a VM: bind a task, then run batches of it.

``exchange`` brings a call's groups and takes its results to the host.

The script's body is executed in fresh globals for every run, so nothing that a
run leaves in a global, a default argument or a class is there for the next.
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
from walle_stream.vm.guest.layout import AGAIN, RUN_RETURNED, RUN_SILENT
from walle_stream.vm.guest.migration import VERSION_KEY, migrate, take_version
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.outcome import describe, write_changes, write_failure, write_success
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.reading import SCRIPT_MODULE
from walle_stream.vm.guest.reply import Reply, ReplyInput
from walle_stream.vm.guest.restricted import REPLACED_NAMES, make_builtins
from walle_stream.vm.guest.sealing import seal_imports
from walle_stream.vm.guest.state import Overlay, State, check_size, merge, state_bytes
from walle_stream.vm.guest.stopping import RunStopped, StepsExceeded, Stopper

TASK_FACTOR: Final = 10
"""A task is out everywhere after so many times the strikes of one device."""

_ASKING_FACTOR: Final = 10  # a run's questions take so many wall times, at most
_GC_THRESHOLD: Final = 50_000


class _Program(NamedTuple):
    task: str
    file: str
    code: CodeType
    context: type[Context]
    shares_globals: bool
    """The host found that no run can leave anything in the globals."""
    limits: Limits
    state_version: int


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


class Session(Exchange):
    """One VM's task and buffers. One thread at a time, the one that entered."""

    def __init__(
        self,
        inbox: memoryview,
        outbox: memoryview,
        pulse: memoryview,
        allowed: Iterable[str] = (),
    ) -> None:
        """Take the buffers.

        Args:
            inbox: Where the host writes orders.
            outbox: Where results go.
            pulse: One u64 for the number of the run at hand, 0 for none.
            allowed: Audit events that what serves the session needs later.
        """
        super().__init__(inbox, outbox)
        self._pulse = pulse.cast("Q")
        self._run_number = 0
        self._asking = (0, 0.0)  # the last run that asked, and seconds that it waited
        self._waited_s = 0.0  # for tensors of runs of the call that are over
        self._call: bytes | None = None  # a copy of what it was given
        self._has_asked = False  # whether it was written over in the inbox
        self._deferral = Deferral(self.ask, self._ask_for_all, self._keep_call, self._pulse)
        self._program = _NO_PROGRAM
        self._stopper = Stopper(self._pulse, 0, _NO_PROGRAM.code)
        self._builtins: dict[str, Any] = {}
        self._shared: dict[str, Any] | None = None
        self._allowed = tuple(allowed)
        self._was_stopped = False  # the run that was described last

    def bind(self, packed: bytes) -> None:
        """Load a task and try its script's body once.

        The result frame is that of a call number 0 with one group of one run:
        what is wrong, if anything.

        Args:
            packed: Marshalled (task, file, code, config, imported modules,
                whether globals can be shared between runs, limits, state
                version, resources).
        """
        given = marshal.loads(packed)  # noqa: S302 - made by the host
        task, file, code, config, imports, shares, limits, version, resources = given
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
        pulse, stopper = self._pulse, self._stopper
        number = pulse[0]
        waited_s = self._asking[1] if self._asking[0] == number else 0.0
        if waited_s * 1000 >= self._program.limits[3] * _ASKING_FACTOR:
            raise RuntimeError(f"a run may ask for {_ASKING_FACTOR} times limits.wallTime")
        start_s = monotonic()
        stopper.paused, pulse[0] = number, 0
        has_failed, answer = self._cross(request)
        pulse[0], stopper.paused = number, 0
        self._asking = (number, waited_s + monotonic() - start_s)
        if has_failed:
            raise RuntimeError(answer.decode("utf-8", "replace"))
        return answer

    def _begin_audit(self) -> None:
        # for ever, and for all of this interpreter
        seal_imports()
        auditing.begin(self._allowed)

    def _ask_for_all(self, request: bytes, run_count: int) -> bytes:
        # for runs of this call that are over: no run is at hand
        if self._waited_s * 1000 >= self._program.limits[3] * _ASKING_FACTOR * run_count:
            raise RuntimeError("the call has asked for too long")
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
        # an answer is written over what the call was given
        if self._call is None and not self._has_asked:
            self._call = bytes(self._packed)
        return self._call is not None

    def call(self, packed: memoryview) -> None:
        """Run a batch.

        Args:
            packed: The groups, marshalled; may be longer.
        """
        deferral = self._deferral
        deferral.is_eager = False
        self._call, self._has_asked = None, False
        words: list[int] = []
        parts: list[bytes] = []
        run_number = self._run_all(packed, self._run_number, words, parts)
        if deferral.is_used:
            if not deferral.finish(words, parts) and self._call is not None:
                words, parts = [], []
                deferral.begin(is_eager=True)
                run_number = self._run_all(self._call, self._run_number | AGAIN, words, parts)
            deferral.begin(is_eager=False)
            self._call, self._waited_s = None, 0.0
        self._run_number = run_number & ~AGAIN
        self._finish(self._order_number, words, parts)

    def _run_all(  # noqa: C901, PLR0912, PLR0915 - the hot loop
        self, packed: memoryview | bytes, run_number: int, words: list[int], parts: list[bytes]
    ) -> int:
        # the number of the last run; ends early where the call has to be made again
        groups = marshal.loads(packed)  # noqa: S302 - made by the host
        code, make_context, limits = self._program.code, self._program.context, self._program.limits
        strikes, counts_steps, max_state_bytes = limits[4:7]
        state_version = self._program.state_version
        shared = self._shared_globals()
        run = shared["run"] if shared else _run_nothing
        pulse, stopper, deferral = self._pulse, self._stopper, self._deferral
        waiting = deferral.features  # empty after every run without tensors in features
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
                        has_value = _take_reply(namespace, context, given)
                    else:
                        has_value = run(context, Page(given)) is not None
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
                    if isinstance(error, MemoryError) and deferral.is_likely:
                        deferral.has_failed = True  # what waits may have taken it
                    log = context._log_
                    write_failure(words, parts, log, self._described(error))
                    if self._was_stopped:
                        stops += 1
                        is_task_out = stops >= strikes * TASK_FACTOR
                        is_out = is_task_out or stops - stops_before >= strikes
                else:
                    if has_value:
                        words.append(RUN_RETURNED)
                    if context._emitted_ or context._log_ is not None:
                        if waiting:
                            deferral.place = (len(words) + 2, len(parts))
                        write_success(words, parts, context)
                    else:
                        words.append(RUN_SILENT)
                    if overlay:
                        changes.update(overlay)
                        merge(state, overlay)
                        old_version = state_version
                if shared is None and namespace:
                    namespace.clear()  # of a run that failed
                if waiting and not deferral.end_run(context, words, parts):
                    pulse[0] = 0
                    return run_number
            if changes:
                if state_version != 1 or left_version != 1:
                    # layout 1 has no number
                    changes[VERSION_KEY] = b"%d" % state_version if state_version != 1 else None
                write_changes(words, parts, changes)
            else:
                words.append(0)
        pulse[0] = 0
        return run_number

    def stop(self, *, for_memory: bool = False) -> None:
        """Stop the run at hand; made by the host as a pending call of this interpreter.

        Args:
            for_memory: Why: the process has too much, or the run takes too long.
        """
        self._stopper.stop(for_memory=for_memory)

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


def _take_reply(namespace: dict[str, Any], context: Context, given: ReplyInput) -> bool:
    on_reply = namespace.get("on_reply")
    return on_reply is not None and on_reply(context, Reply(given)) is not None


def _run_nothing(_context: Context, _page: Page) -> None:
    pass  # until a run's own globals are made


def _flat(packed: bytes) -> dict[str, Any] | bytes:
    # a copy of a flat dict is as good as unmarshalling it anew, and ten times as fast
    config: dict[str, Any] = marshal.loads(packed)  # noqa: S302 - made by the host
    return packed if any(isinstance(v, (dict, list)) for v in config.values()) else config
