"""One suite for both kinds of VM: what a pool may rely on, whatever stands around the guest."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.errors import FrameError, ScriptError
from walle_stream.vm import machine as any_machine
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.machine import Machine
from walle_stream.vm.process.machine import ProcessMachine
from walle_stream.vm.program import TaskProgram, compile_program
from walle_stream.vm.services import HostServices
from walle_stream.vm.virtual_machine import VirtualMachine

pytestmark = pytest.mark.vm

LARGE = RunLimits(output_bytes=64 * 1024 * 1024)
ECHO = "def run(ctx, page): ctx.emit({'s': page.trigger['s'] * 2})"
LOOP = "def run(ctx, page):\n  while page.trigger['s']: pass\n  ctx.emit({})"

type Open = Callable[[str], Machine]


@pytest.fixture(params=[VirtualMachine, ProcessMachine], ids=["interpreter", "process"])
def open_machine(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Makes VMs of one kind; destroyed after the test."""
    machines: list[Machine] = []
    services = HostServices(EngineEvaluator(NumpyBackend()))

    def open_(source: str) -> Machine:
        program = compile_program(TaskProgram("t", "v1", source, "scripts/t.py", {}, LARGE))
        machines.append(request.param(program, services=services))
        return machines[-1]

    yield open_
    for machine in machines:
        machine.destroy()


@pytest.fixture
def call(page: Any) -> Callable[..., list[Any]]:
    """Calls a VM with a group per contents given."""

    def call_(machine: Machine, *contents: Any) -> list[Any]:
        groups: Any = [(f"d{n}", {}, [(n, 7, page({"s": s}))]) for n, s in enumerate(contents)]
        return [group.runs[0] for group in machine.call(groups, encode_groups(groups))]

    return call_


def test_calls_and_runs_are_counted(open_machine: Open, call: Any) -> None:
    one, two = open_machine(ECHO), open_machine(ECHO)
    for given in (("a",), ("a", None), ()):
        assert [run.ok for run in call(one, *given)] == [isinstance(s, str) for s in given]
    assert (one.task, one.calls, one.runs, two.calls) == ("t", 3, 3, 0)
    assert one.serial < two.serial
    assert (one.run_number, one.run_at_hand, one.crashed_run) == (0, None, None)
    assert not (one.was_killed)
    assert not (one.was_stopped)
    assert not (one.is_worn)


def test_buffers_grow_and_shrink(open_machine: Open, call: Any) -> None:
    machine = open_machine(ECHO)
    for size in (10, 200_000, 300_000, 3_000_000, 10, 6_000_000, 10, 6_000_000):
        (run,) = call(machine, "x" * size)
        assert len(run.emits[0][0]) == 2 * size + len('{"s":""}')


def test_what_is_larger_than_there_is_room_for_is_refused(
    open_machine: Open, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = open_machine(ECHO)
    monkeypatch.setattr(machine, "_max_buffer_bytes", 1_000_000)
    with pytest.raises(FrameError, match="a call of 2000"):
        call(machine, "x" * 2_000_000)
    with pytest.raises(FrameError, match="a result of 1200"):
        call(machine, "x" * 600_000)


def test_a_run_that_asks_is_answered(open_machine: Open, call: Any) -> None:
    machine = open_machine(
        "def run(ctx, page): ctx.emit({'s': (ctx.tensor([page.trigger['s']]) * 2.0).tolist()})"
    )
    assert [run.emits[0][0] for run in call(machine, 1.0, 2.5)] == [b'{"s":[2.0]}', b'{"s":[5.0]}']


@pytest.mark.parametrize("for_memory", [False, True])
def test_a_run_that_is_told_to_stop_fails_alone(
    open_machine: Open, call: Any, *, for_memory: bool
) -> None:
    machine = open_machine(LOOP)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(call(machine, 0, 1, 0)))
    thread.start()
    while machine.run_at_hand != ("d1", 1):
        os.sched_yield()
    assert machine.stop_run(for_memory=for_memory)
    thread.join()
    assert [run.error for run in found] == ["", "RunStopped", ""]
    assert machine.was_stopped
    assert [run.ok for run in call(machine, 0)] == [True]


def test_a_stop_between_runs_stops_nothing(open_machine: Open, call: Any) -> None:
    machine = open_machine(LOOP)
    for _ in range(20):
        assert machine.stop_run()
        assert [run.ok for run in call(machine, 0)] == [True]


def test_a_script_that_raises_when_loaded_is_named(open_machine: Open) -> None:
    with pytest.raises(ScriptError) as caught:
        open_machine("def run(ctx, page): pass\nX = {}['no']\n")
    message = "scripts/t.py:2: task 't': raises when loaded: KeyError: 'no'"
    assert (str(caught.value), caught.value.line) == (message, 2)
    assert not any_machine._machines


def test_a_script_that_loops_when_loaded_is_stopped(
    open_machine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_machine, "START_TIMEOUT_S", 1.0)
    monkeypatch.setattr(any_machine, "STOP_TIMEOUT_S", 60.0)
    with pytest.raises(ScriptError, match=r"t\.py:1: task 't': raises when loaded: RunStopped"):
        open_machine("while True: pass\ndef run(ctx, page): pass")


def test_what_was_destroyed_takes_nothing_any_more(open_machine: Open, call: Any) -> None:
    machine = open_machine(ECHO)
    assert machine in any_machine._machines
    machine.destroy()
    machine.destroy()
    assert machine not in any_machine._machines
    assert not machine.stop_run()
    assert not machine.is_alive
