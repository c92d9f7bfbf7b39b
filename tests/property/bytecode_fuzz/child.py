"""Makes, checks and runs mutants in this process; tells where it is in a shared file.

python child.py PROGRESS SEED FIRST LAST
"""

# ruff: noqa: S102, S302, BLE001 - mutants are made and run here, whatever they raise

import ast
import faulthandler
import gc
import marshal
import mmap
import random
import resource
import signal
import struct
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[3]))

from mutants import mutated
from scripts import SCRIPTS

from walle_stream.vm import gate
from walle_stream.vm.bytecode.check import check_code
from walle_stream.vm.guest.context import bind_context
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.reading import SCRIPT_MODULE
from walle_stream.vm.guest.restricted import REPLACED_NAMES, make_builtins
from walle_stream.vm.guest.state import State
from walle_stream.vm.guest.stopping import RunStopped, Stopper

PROGRESS = struct.Struct("<6q")  # number, phase, made, accepted, ended late, ran to the end
MAKING, CHECKING, RUNNING, DONE = range(4)
RUNS = 4
LATE_S, AGAIN_S, STUCK_S = 0.3, 0.02, 20
MEMORY_BYTES = 3 << 30
LIMITS = (1 << 20, 100, 10, 5000, 3, 0, 1 << 20)


class Late(BaseException):
    """A mutant takes too long."""


class Alarm:
    is_on = False

    def ring(self, *_):
        if self.is_on:
            raise Late


def refuse_outside(event, _):
    # a mutant gets a script's builtins; this holds where one finds more
    if ALARM.is_on and event.partition(".")[0] in {
        "os",
        "subprocess",
        "socket",
        "shutil",
        "ctypes",
    }:
        raise PermissionError(event)


ALARM = Alarm()


def compiled(name):
    tree = ast.parse(SCRIPTS[name])
    assert gate.check(tree) == [], (name, gate.check(tree))
    modules = sorted(gate.imported_modules(tree))
    code = compile(gate.rewrite(tree), f"{name}.py", "exec", dont_inherit=True, optimize=0)
    return marshal.dumps(code), make_builtins(make_importer(modules, REPLACED_NAMES))


class Interrupts:
    """Raises at every so many lines, jumps and starts, as what stops a run does."""

    TOOL = 2

    def __init__(self, every):
        self._every = every
        self._count = 0

    def __enter__(self):
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(self.TOOL, "fuzz")
        for event in (events.LINE, events.JUMP, events.PY_START):
            sys.monitoring.register_callback(self.TOOL, event, self._on_event)
        sys.monitoring.set_events(self.TOOL, events.LINE | events.JUMP | events.PY_START)

    def __exit__(self, *_):
        sys.monitoring.set_events(self.TOOL, 0)
        sys.monitoring.free_tool_id(self.TOOL)

    def _on_event(self, code, *_):
        if code.co_filename in FILES:
            self._count += 1
            if not self._count % self._every:
                raise RunStopped


FILES = {f"{name}.py" for name in SCRIPTS}


def run(code, builtins, counts_steps):
    module = sys.modules[SCRIPT_MODULE] = ModuleType(SCRIPT_MODULE)
    namespace = module.__dict__
    namespace["__builtins__"] = builtins
    namespace["print"] = lambda *_, **__: None
    pulse = memoryview(bytearray(8)).cast("Q")
    pulse[0] = 1
    stopper = Stopper(pulse, 20_000 if counts_steps else 0, code)
    if not counts_steps:
        stopper = None
    context = bind_context("t", {"session_gap_ms": 1}, LIMITS, {}, bytes)
    ended = 0
    try:
        for _ in range(RUNS):
            if stopper:
                stopper.begin_run()
            try:
                if "run" not in namespace:
                    exec(code, namespace)
                page = Page(("v", "v1@1", "exit", 1000, None, EVENTS))
                namespace["run"](context("d", 1, 1000, State({})), page)
                ended += 1
            except Late:
                raise
            except BaseException as error:
                error.__traceback__ = None
    finally:
        namespace.clear()
        if stopper:
            sys.monitoring.free_tool_id(3)
    return ended


def row(kind, time_ms, content):
    return (kind, kind, time_ms, time_ms, content)


EVENTS = [
    row("page_enter", 1000, {"item": "v1", "entry": "x", "duration_ms": 9000}),
    row("click", 2000, {"widget": "like", "item": "v1"}),
    row("page_exit", 5000, {"profile_stay_ms": 0, "item": "v1"}),
]


def with_own_exception(*given, **named):
    # a generator has an exception at hand of its own: what a mutant leaves there ends with it
    late, ended = guarded_run(*given, **named)
    yield late, ended, sys.exception() is not None


def guarded_run(mutant, builtins, *, counts_steps=False, every=0):
    """Return (ended late, ran to the end); the alarm may ring anywhere in here."""
    ended = 0
    try:
        ALARM.is_on = True
        signal.setitimer(signal.ITIMER_REAL, LATE_S, AGAIN_S)
        try:
            with Interrupts(every) if every else nullcontext():
                ended = run(mutant, builtins, counts_steps)
            gc.collect()
        finally:
            ALARM.is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Late:
        ALARM.is_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        return 1, 0
    return 0, ended == RUNS


def main(progress, seed, first, last):
    with Path(progress).open("r+b") as file:
        shown = mmap.mmap(file.fileno(), PROGRESS.size)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(400)
    sys.unraisablehook = lambda *_: None
    signal.signal(signal.SIGALRM, ALARM.ring)
    sys.addaudithook(refuse_outside)
    names = list(SCRIPTS)
    scripts = [compiled(name) for name in names]
    for name, (packed, builtins) in zip(names, scripts, strict=True):
        assert check_code(marshal.loads(packed)) == [], name
        late, ended = guarded_run(marshal.loads(packed), builtins)
        assert (late, ended) == (0, True), name
    gc.collect()
    gc.freeze()  # each collection below looks at what the mutants made alone
    made = accepted = lates = endeds = 0
    for number in range(first, last):
        shown[:] = PROGRESS.pack(number, MAKING, made, accepted, lates, endeds)
        rng = random.Random(f"{seed}/{number}")
        packed, builtins = rng.choice(scripts)
        mutant = mutated(rng, marshal.loads(packed))
        if mutant is None:
            continue
        try:
            packed = marshal.dumps(mutant)
        except ValueError:  # a constant that this Python cannot pack
            continue
        mutant = marshal.loads(packed)
        made += 1
        shown[:] = PROGRESS.pack(number, CHECKING, made, accepted, lates, endeds)
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        if not check_code(mutant):
            accepted += 1
            shown[:] = PROGRESS.pack(number, RUNNING, made, accepted, lates, endeds)
            mutant = None
            mode = number % 8
            every = number % 40 + 2 if mode in {1, 5} else 0
            late, ended, has_left = next(
                with_own_exception(
                    marshal.loads(packed), builtins, counts_steps=mode in {0, 4}, every=every
                )
            )
            if has_left and not late and not every:
                raise AssertionError("it left its exception at hand")
            lates += late
            endeds += ended
            while True:
                try:
                    gc.collect()
                    break
                except Late:
                    pass
        faulthandler.cancel_dump_traceback_later()
    shown[:] = PROGRESS.pack(last, DONE, made, accepted, lates, endeds)


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
