"""VMs in processes of their own: the same results, contained ends, closed doors."""

import gc
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from walle_stream.errors import ScriptError, VmCrashedError, VmStartError
from walle_stream.vm import machine as any_machine
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.machine import BUFFER_BYTES
from walle_stream.vm.process.machine import ProcessMachine, ProcessSettings
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program
from walle_stream.vm.results import GroupResult
from walle_stream.vm.virtual_machine import VirtualMachine
from walle_stream.vm.watchdog import Watchdog

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(sys.platform == "win32", reason="descriptors are inherited by number"),
]

LARGE = RunLimits(output_bytes=64 * 1024 * 1024)


def compiled(source: str, limits: RunLimits = LARGE, config: Any = None) -> CompiledProgram:
    return compile_program(TaskProgram("t", "v1", source, "scripts/t.py", config or {}, limits))


@pytest.fixture
def open_machine() -> Iterator[Callable[..., ProcessMachine]]:
    """Makes process VMs; destroyed after the test."""
    machines: list[Any] = []

    def open_(program: CompiledProgram | str, kind: type = ProcessMachine, **settings: Any) -> Any:
        if isinstance(program, str):
            program = compiled(program)
        given = (ProcessSettings(**settings),) if settings else ()
        machines.append(kind(program, *given))
        return machines[-1]

    yield open_
    for machine in machines:
        machine.destroy()


@pytest.fixture
def call(page: Any) -> Callable[..., list[GroupResult]]:
    """Calls a VM with a group per contents given."""

    def call_(machine: Any, *contents: dict[str, Any]) -> list[GroupResult]:
        groups = [(f"d{n}", {}, [(1, 7, page(item))]) for n, item in enumerate(contents or ({},))]
        return machine.call(groups, encode_groups(groups))

    return call_


SAME = {
    "emits": "def run(ctx, page): ctx.emit({'dwell': page.trigger['x'], 'd': ctx.device_id})",
    "state": """
def run(ctx, page):
    ctx.state.put("n", ctx.state.get("n", 0) + 1)
    ctx.state.put("gone", 1)
    ctx.state.delete("gone")
    ctx.emit({"n": ctx.state.get("n")}, b"\\x00\\xff")
""",
    "fails": "def run(ctx, page): print('before'); return 1 / page.trigger['x']",
    "modules": """
import base64, collections, datetime, decimal, fractions, hashlib, json, re, statistics, string, zlib
def run(ctx, page):
    day = datetime.datetime.strptime("2024-02-03", "%Y-%m-%d")
    ctx.emit({
        "day": day.strftime("%a %d %b"), "sha": hashlib.sha256(b"x").hexdigest(),
        "big": str(decimal.Decimal(1) / 7), "group": f"{decimal.Decimal('-0.01'):z.1f}", "long": len(str(7 ** 5000)), "re": re.sub("a+", "b", "caat"),
        "f": str(fractions.Fraction(1, 3)), "mean": statistics.fmean([1, 2]),
        "t": string.Template("$a").substitute(a=1), "z": zlib.crc32(b"abc"),
        "codecs": ["ä".encode(c).hex() for c in ("utf-16", "latin-1", "cp1252", "utf-32-le")],
        "random": ctx.random.random(), "int": int("9" * 3000) % 97,
    })
""",
    "lazy": """
import dataclasses, enum, typing, functools, collections
@dataclasses.dataclass(order=True)
class P:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)
class N(typing.NamedTuple):
    a: int
class E(enum.Flag):
    A = 1
    B = 2
def run(ctx, page):
    ctx.emit({"p": repr(P(1)), "d": dataclasses.asdict(P(2)), "n": repr(N(1)), "e": repr(E.A | E.B),
              "g": repr(list[int] | None), "o": "\\N{BULLET}", "e2": f"{1234.5:n} {10**20:,}"})
    "\\udc80".encode()
""",
    "memory": "def run(ctx, page): raise MemoryError",
    "exits": "def run(ctx, page): raise SystemExit(3)",
    "log": "def run(ctx, page): ctx.log.warning('a' * 5000); print('b')",
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME.keys())
def test_results_are_those_of_a_vm_in_the_host(open_machine: Any, call: Any, source: str) -> None:
    results = []
    for kind in (VirtualMachine, ProcessMachine):
        machine = open_machine(source, kind)
        results.append([call(machine, {"x": n}, {"x": 0}) for n in range(3)])
        assert machine.run_number == 0
        assert machine.run_at_hand is None
        assert machine.task == "t"
    assert results[0] == results[1]


def test_a_set_of_text_has_one_order_in_all_processes(open_machine: Any, call: Any) -> None:
    source = "def run(ctx, page): ctx.emit({'s': list({str(n) for n in range(50)})})"
    one, two = (call(open_machine(source)) for _ in range(2))
    assert one == two


def test_memory_of_a_large_call_is_given_back(open_machine: Any, call: Any) -> None:
    machine = open_machine("def run(ctx, page): ctx.emit({'s': page.trigger['s']})")
    call(machine, {"s": "x" * 8_000_000})
    held = [os.fstat(memory.fd).st_blocks * 512 for memory in machine._memories]
    assert max(held) <= BUFFER_BYTES


def test_a_script_that_loops_in_c_when_loaded_is_ended(
    open_machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_machine, "START_TIMEOUT_S", 2.0)
    with pytest.raises(VmStartError, match="did not start"):
        open_machine("sum(range(10**15))\ndef run(ctx, page): pass")


# Ends of the child


def in_background(action: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    return thread, errors


def wait_for_run(machine: Any) -> None:
    while not machine.run_number:
        os.sched_yield()


LOOP = "def run(ctx, page):\n if page.trigger['x']: sum(range(10**15))\n ctx.emit({})"


def test_a_killed_child_ends_its_call(open_machine: Any, call: Any) -> None:
    machine = open_machine(LOOP)
    thread, errors = in_background(lambda: call(machine, {"x": 1}))
    wait_for_run(machine)
    os.kill(machine.pid, signal.SIGKILL)
    thread.join(10)
    assert [type(error) for error in errors] == [VmCrashedError]
    assert "SIGKILL" in str(errors[0])
    with pytest.raises(VmCrashedError):
        call(machine, {"x": 0})
    machine.destroy()
    with pytest.raises(VmCrashedError, match="is destroyed"):
        call(machine, {"x": 0})
    assert not machine.stop_run()
    assert call(open_machine(LOOP), {"x": 0})[0].runs[0].ok


def test_kill_names_the_run(open_machine: Any, call: Any) -> None:
    machine = open_machine(LOOP)
    thread, errors = in_background(lambda: call(machine, {"x": 0}, {"x": 1}, {"x": 0}))
    while machine.run_at_hand != ("d1", 1):
        os.sched_yield()
    machine.kill("the test said so")
    thread.join(10)
    assert "the test said so" in str(errors[0])
    assert machine.crashed_run == ("d1", 1)
    machine.kill("twice")


def test_destroy_ends_a_call_of_another_thread(open_machine: Any, call: Any) -> None:
    machine = open_machine(LOOP)
    thread, errors = in_background(lambda: call(machine, {"x": 1}))
    wait_for_run(machine)
    machine.destroy()
    thread.join(10)
    assert [type(error) for error in errors] == [VmCrashedError]
    assert (machine.run_number, machine.run_at_hand) == (0, None)


def watched(machine: Any, limit_ms: int) -> tuple[Watchdog, list[str]]:
    seen: list[str] = []
    watchdog = Watchdog(lambda _: seen.append("stop"), lambda _: seen.append("stuck"))
    watchdog.watch(machine, limit_ms)
    return watchdog, seen


def test_a_loop_in_c_is_killed_before_the_watchdog_gives_up(open_machine: Any, call: Any) -> None:
    machine = open_machine(compiled(LOOP, RunLimits(wall_time_ms=1_500)))
    watchdog, seen = watched(machine, 1_500)
    with pytest.raises(VmCrashedError, match="did not stop in"):
        call(machine, {"x": 0}, {"x": 1})
    watchdog.close()
    assert seen == ["stop"]
    assert machine.crashed_run == ("d1", 1)


def test_a_memory_hog_harms_no_one_else(open_machine: Any, call: Any) -> None:
    source = "def run(ctx, page):\n x = [b'x' * (1 << 20) for _ in range(page.trigger['n'])]"
    machine = open_machine(source, memory_bytes=64 * 1024 * 1024)
    hog, fine = call(machine, {"n": 10_000}, {"n": 1})
    assert (hog.runs[0].error, fine.runs[0].ok) == ("MemoryError", True)
    machine = open_machine(
        "def run(ctx, page): ctx.emit({'n': page.trigger['n'] * 'x'})",
        memory_bytes=64 * 1024 * 1024,
    )
    (group,) = call(machine, {"n": 1 << 40})
    assert group.runs[0].error == "MemoryError"


# Nothing is left


def open_count() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_nothing_is_left_of_machines_that_are_destroyed(page: Any) -> None:
    program = compiled("def run(ctx, page): ctx.emit({})")
    groups: Any = [("d", {}, [(1, 7, page())])]
    ProcessMachine(program).destroy()  # the spawner and what it needs stay
    gc.collect()
    before = open_count()
    pids = []
    for _ in range(20):
        machine = ProcessMachine(program)
        machine.call(groups, encode_groups(groups))
        pids.append(machine.pid)
        machine.destroy()
        machine.destroy()
    assert open_count() == before
    for pid in pids:
        with pytest.raises(ProcessLookupError):  # neither running nor a zombie
            os.kill(pid, 0)
    with pytest.raises(ScriptError):
        ProcessMachine(compiled("X = 1 / 0\ndef run(ctx, page): pass"))
    assert open_count() == before


def test_files_without_a_name_serve_where_there_are_no_memory_files(
    open_machine: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    machine = open_machine("def run(ctx, page): ctx.emit({'s': page.trigger['s'] * 2})")
    for size in (10, 3_000_000):
        assert call(machine, {"s": "x" * size})[0].runs[0].ok
    os.kill(machine.pid, signal.SIGKILL)
    with pytest.raises(VmCrashedError, match="SIGKILL"):
        call(machine, {"s": ""})


def test_a_thread_that_made_a_machine_may_end(open_machine: Any, call: Any) -> None:
    machines: list[Any] = []
    thread, errors = in_background(lambda: machines.append(open_machine(LOOP)))
    thread.join()
    assert not errors
    for _ in range(50):
        assert call(machines[0], {"x": 0})[0].runs[0].ok


HOST = """
import os, sys, threading
from walle_stream.vm.process.machine import ProcessMachine
from walle_stream.vm.program import TaskProgram, compile_program
from walle_stream.vm.frames import encode_groups
source = "def run(ctx, page): sum(range(10**15))"
machine = ProcessMachine(compile_program(TaskProgram("t", "v", source, "t.py")))
row = ("a", "click", 1, 1, None)
groups = [("d", {}, [(1, 0, ("p", "i", "none", None, row, [row]))])]
threading.Thread(target=machine.call, args=(groups, encode_groups(groups)), daemon=True).start()
while not machine.run_number: pass
print(machine.pid, flush=True)
if sys.argv[1] == "wait": sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["exit", "kill -9"])
def test_no_child_outlives_its_host(end: str) -> None:
    if sys.platform != "linux" and end != "exit":
        pytest.skip("only Linux ties a child to its host")
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, "exit" if end == "exit" else "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    child = os.pidfd_open(pid) if hasattr(os, "pidfd_open") and end != "exit" else None
    if child is not None:
        host.kill()
    host.communicate(timeout=30)
    if child is not None:
        assert select.select([child], [], [], 30)[0]
        os.close(child)
        return
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
