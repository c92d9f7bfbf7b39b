"""What CPython's interpreters do to a process, and what keeps them from it.

Each test runs the danger in a Python of its own, bare and with its mitigation:
without the mitigation the second half fails as the first one shows.
"""

import sys
import threading
from types import CodeType
from typing import Any

import pytest

from walle_stream.errors import VmStartError
from walle_stream.vm import pool as pools
from walle_stream.vm.interpreters import HOST_IMPORTS, Interpreter, ensure_supported, live_count
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram

pytestmark = pytest.mark.vm

IS_313 = sys.version_info < (3, 14)
only_313 = pytest.mark.skipif(not IS_313, reason="only Python 3.13 does this")

# nothing else is imported: it could bring what is missing
DESTROYED = """
import sys
from walle_stream.vm import interpreters
if sys.argv[2] == "bare":
    interpreters.HOST_IMPORTS = ()
made = [interpreters.Interpreter() for _ in range(2)]
for one in made:
    assert one.execute(compile("import " + sys.argv[1], "x", "exec")) is None
for one in made:
    one.destroy()
print("alive")
"""
ABORTING = (*HOST_IMPORTS, "calendar", "email.message")


@only_313
@pytest.mark.parametrize("module", ["datetime", "sqlite3", "zoneinfo"])
def test_destroying_two_vms_aborts_where_the_host_lacks_a_module(
    run_child: Any, module: str
) -> None:
    done = run_child(DESTROYED, module, "bare", common="")
    assert done.returncode < 0, done.stdout


@pytest.mark.parametrize("module", ABORTING)
def test_the_host_imports_them_first(run_child: Any, module: str) -> None:
    done = run_child(DESTROYED, module, "mended", common="")
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


POOL_END = """
import atexit
from walle_stream.vm import interpreters, machine, virtual_machine
if sys.argv[2] == "bare":
    atexit.unregister(machine._destroy_all)
    atexit.unregister(interpreters._registry.destroy_all)
pool = VmPool(task(sys.argv[1], limits=RunLimits(wall_time_ms=600_000)), PoolLimits(vms=2))
threading.Thread(target=pool.run, args=("t", groups("d")), daemon=True).start()
while not any(machine.is_running for machine in pool.machines): pass
virtual_machine.DESTROY_TIMEOUT_S = 1.0
"""
# registered first, so it is called last of all
LAST = """
import atexit, sys
atexit.register(lambda: print(sys.modules["walle_stream.vm.interpreters"].live_count()))
"""
PYTHON_LOOP = "def run(ctx, page):\n    while True: pass"
C_LOOP = "def run(ctx, page): sum(range(10**15))"


def test_vms_are_destroyed_at_exit(run_child: Any) -> None:
    # bare, some of these processes die of a fault
    assert run_child(POOL_END, PYTHON_LOOP, "bare", first=LAST).stdout == "2\n"
    done = run_child(POOL_END, PYTHON_LOOP, "mended", first=LAST)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


LATE_THREAD = """
from walle_stream.vm.virtual_machine import VirtualMachine
enders, destroy, serve = [], Interpreter.destroy, VirtualMachine._serve
def note(self):
    if self._is_alive:
        enders.append(threading.current_thread().name)
    destroy(self)
def serve_late(self, *given):
    while not self._is_ending: pass
    serve(self, *given)
pool = VmPool(task("def run(ctx, page): ctx.emit({})"), 1)
pool.run("t", groups("d"))
Interpreter.destroy, VirtualMachine._serve = note, serve_late
pool.install(task("def run(ctx, page): ctx.emit({})")["t"])
enders.clear()
"""
ENDERS = """
import atexit, sys
atexit.register(lambda: print(sys.modules["__main__"].enders))
"""


def test_at_exit_a_vm_is_ended_by_its_own_thread(run_child: Any) -> None:
    # also where that thread has not entered its interpreter yet
    done = run_child(LATE_THREAD, first=ENDERS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['walle-vm-t']\n", "")


def test_a_process_whose_vm_cannot_be_stopped_ends_all_the_same(run_child: Any) -> None:
    # bare, it waits for the interpreter without end
    done = run_child(POOL_END, C_LOOP, "mended")
    assert done.returncode == 10
    assert done.stderr == "walle: a script does not end: the process ends without it\n"


def test_no_exception_proves_nothing() -> None:
    one = Interpreter()
    try:
        failure = one.execute(compile("raise MemoryError", "x", "exec"))
        assert failure in {None, "None"}  # neither class nor text
    finally:
        one.destroy()


LOST = """
from walle_stream.vm import virtual_machine
raising = code("import os\\nos.read(_wake, 8)\\nraise MemoryError")
if sys.argv[1] == "forged":  # what it would be without the mark: the number alone
    raising = code("import os\\nos.read(_wake, 8)\\n_session._heads[2] = 0\\nraise MemoryError")
pool = VmPool(task("def run(ctx, page): ctx.emit({})"), 1)
virtual_machine._SERVE = raising
pool.install(task("def run(ctx, page): ctx.emit({})")["t"])
try:
    pool.run("t", groups("d"))
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("how", ["lost", "forged"])
def test_a_memory_error_that_vanishes_is_no_success(run_child: Any, how: str) -> None:
    assert run_child(LOST, how).stdout == "VmCrashedError\n"


SHARES = """
from walle_stream.vm import interpreters
if sys.argv[1] == "bare":
    interpreters._PREPARE = code("pass")
buffer, one = bytearray(1), Interpreter()
try:
    one.share(view=memoryview(buffer))
    one.execute(code("view[0] = 7"))
except Exception:
    print("refused")
one.destroy()
print(buffer[0])
"""


def test_a_view_crosses_once_the_guest_has_the_module(run_child: Any) -> None:
    if IS_313:
        assert run_child(SHARES, "bare").stdout == "refused\n0\n"
    assert run_child(SHARES, "mended").stdout == "7\n"


def test_a_vm_is_entered_by_its_own_thread_alone(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_supported()  # its own interpreter is entered once, here
    seen: dict[int, set[str]] = {}
    execute = Interpreter.execute

    def noted(self: Interpreter, code: CodeType) -> str | None:
        seen.setdefault(id(self), set()).add(threading.current_thread().name)
        return execute(self, code)

    monkeypatch.setattr(Interpreter, "execute", noted)
    program = TaskProgram("t", "v", "def run(ctx, page): ctx.emit({'x': 'y' * 400_000})", "t.py")
    with VmPool({"t": program}, 2) as pool:
        pool.run("t", [("d", {}, [(1, 0, page())])])
    assert len(seen) == 2
    assert all(name.startswith("walle-vm") for names in seen.values() for name in names)


WAITS = """
(told, tell), (asked, ask) = os.pipe(), os.pipe()
one = Interpreter()
assert one.execute(code(sys.argv[1].format(tell=tell, asked=asked))) is None
destroying = threading.Thread(target=one.destroy)
destroying.start()
os.read(told, 1)
print(destroying.is_alive())
os.write(ask, b"x")
destroying.join()
print(destroying.is_alive())
"""
THREAD = "import os, threading\\ndef work(): os.write({tell}, b'x'); os.read({asked}, 1)"
THREAD = THREAD.replace("\\n", "\n") + "\nthreading.Thread(target=work).start()"
FINALISER = """
import os, select, sys
class Late:
    def __del__(self, os=os, select=select):
        os.write({tell}, b'x')
        while not select.select([{asked}], [], [], 0)[0]: pass
sys.modules["late"] = Late()
"""


@pytest.mark.parametrize("what", [THREAD, FINALISER], ids=["thread", "finaliser"])
def test_destroying_a_vm_waits_for_what_a_guest_left_there(run_child: Any, what: str) -> None:
    # for ever, where it never ends: no guest may start a thread or define __del__
    assert run_child(WAITS, what).stdout == "True\nFalse\n"


LATE = """
from walle_stream.vm import virtual_machine
from walle_stream.vm.program import pack_program
virtual_machine.DESTROY_TIMEOUT_S = 0.2
source = '''
class Late:
    def __del__(self):
        while True: pass
def run(ctx, page):
    real = ctx.emit.__func__.__globals__["__builtins__"]
    load = real["__import__"] if isinstance(real, dict) else real.__import__
    load("sys").modules["late"] = Late()
    ctx.emit({})
'''
program = pack_program(task("")["t"], compile(source, "t.py", "exec"), (), shares_globals=True)
pool = VmPool({}, 1)
pool.install(program)
print(pool.run("t", groups("d"))[0].runs[0].ok)
pool.close()
print("closed", flush=True)
"""


def test_a_finaliser_that_gets_past_the_gate_keeps_nobody_waiting(run_child: Any) -> None:
    done = run_child(LATE)
    assert (done.returncode, done.stdout) == (10, "True\nclosed\n"), done.stderr


def test_a_running_vm_is_never_destroyed(run_child: Any) -> None:
    done = run_child(
        """
pool = VmPool(task("def run(ctx, page):\\n    for _ in range(3_000_000): pass\\n    ctx.emit({})"), 1)
found = []
thread = threading.Thread(target=lambda: found.extend(pool.run("t", groups("d"))))
thread.start()
while not pool.machines[0].is_running: pass
(machine,) = pool._task_pools["t"].machines
try:
    machine._interpreter.destroy()
except Exception as error:
    print(error)
pool.close()
thread.join()
print(found[0].runs[0].ok, pool.counts.destroyed)
"""
    )
    assert done.stdout == "interpreter running\nTrue 1\n", done.stderr


LEAKS = """
from walle_stream.vm.memory import resident_bytes
def churn(count):
    for _ in range(count):
        one = Interpreter()
        one.execute(code("import json, re, struct"))
        one.destroy()
churn(5)
before = resident_bytes()
churn(20)
print((resident_bytes() - before) // 20)
"""


def test_a_process_begins_anew_where_destroyed_vms_leave_memory_behind(run_child: Any) -> None:
    left = int(run_child(LEAKS).stdout)
    # what a process may gather until it begins anew: about 3 GB
    assert (1_000 if IS_313 else 0) == pools.DESTROYED_MAX
    assert (left > 1_000_000) == IS_313
    assert left < (3_500_000 if IS_313 else 200_000)


@pytest.mark.parametrize("module", ["msgspec", "numpy", "rocksdict"])
def test_what_cannot_be_imported_inside_is_refused_by_the_interpreter_too(module: str) -> None:
    one = Interpreter()
    try:
        failure = one.execute(compile(f"import {module}", "x", "exec"))
        assert "does not support loading in subinterpreters" in (failure or "")
    finally:
        one.destroy()
    assert live_count() == 0


def test_the_reason_why_no_vm_can_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from walle_stream.vm import runaway  # noqa: PLC0415 - next to its only use

    monkeypatch.setattr(runaway, "_NAMES", (*runaway._NAMES, "_PyNoSuchName"))
    with pytest.raises(VmStartError, match="lacks _PyNoSuchName"):
        runaway.StopApi()
