"""Scripts that do not return: stopped, named, and without harm to their neighbours."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.watchdog import Watchdog

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("cpu_clock")]

QUICK = RunLimits(wall_time_ms=100)

LOOPS = {
    "while": "while True: pass",
    "for": "for n in iter(int, 1): pass",
    "catches": """while True:
            try:
                while True: pass
            except BaseException: pass""",
    "finally": """try:
            while True: pass
        finally:
            while True: pass""",
    "calls": """def f(): return g()
        def g(): return 1
        while True:
            try: f()
            except BaseException: continue""",
    "generator": """def f():
            while True:
                yield 1
        while True:
            try:
                for _ in f(): pass
            except BaseException: pass""",
    "comprehension": "all([True for _ in range(100)] for _ in iter(int, 1))",
    "raises": """try:
            while True: pass
        except BaseException as error:
            raise ValueError('mine') from error""",
    "returns": """try:
            while True: pass
        except BaseException:
            return""",
    "library": "import re; [re.compile('a' * n + 'b?') for n in iter(int, 1)]",
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_a_loop_is_stopped_and_its_neighbours_run(open_pool: Any, page: Any, loop: str) -> None:
    source = f"""
def run(ctx, page):
    ctx.state.put("last", ctx.device_id)
    ctx.emit({{"device": ctx.device_id}})
    if page.trigger["loops"]:
        {loop}
"""
    pool = open_pool(source, limits=QUICK)
    groups = [(f"d{n}", {}, [(1, 0, page({"loops": n == 2}))]) for n in range(5)]
    results = pool.run("t", groups)
    assert [group.runs[0].ok for group in results] == [True, True, False, True, True]
    failed = results[2]
    assert (failed.state, failed.runs[0].emits) == ({}, [])
    assert failed.runs[0].error == "RunStopped"
    words = "took longer than 0.1 s (limits.wallTime) and was stopped"
    assert failed.runs[0].message.endswith(words)
    assert failed.runs[0].message.startswith("t.py:")
    assert (pool.counts.stopped, pool.counts.crashes, pool.counts.stuck) == (1, 0, 0)
    # nothing stays switched on in the VM
    assert all(group.runs[0].ok for group in pool.run("t", groups[:2] * 50))


def test_a_stop_that_comes_late_stops_no_other_run(open_pool: Any, page: Any) -> None:
    source = "def run(ctx, page): ctx.emit({'n': sum([1 for _ in range(200)])})"
    pool = open_pool(source, limits=RunLimits(strikes=1_000_000))
    machine = pool._task_pools["t"].idle[0]
    is_over = threading.Event()

    def stop_often() -> None:
        # a breath between them: a queue that is always full slows the calls to a crawl
        while not is_over.wait(0.001):
            machine.stop_run()

    thread = threading.Thread(target=stop_often)
    thread.start()
    groups = [("d", {}, [(1, 0, page())] * 50)]
    failed = 0
    for number in range(4_000):
        failed += sum(not run.ok for run in pool.run("t", groups)[0].runs)
        # on a busy machine the thread may not get a turn for long
        if failed and number >= 40:
            break
    is_over.set()
    thread.join()
    assert failed  # it does stop runs that are at hand
    pool.run("t", groups)  # makes what was asked for last
    assert all(run.ok for run in pool.run("t", groups)[0].runs)
    assert pool.counts.crashes == 0


def test_another_vm_runs_while_one_loops(page: Any) -> None:
    programs = {
        "loop": TaskProgram(
            "loop", "v", "def run(ctx, page):\n  while True: pass", "t.py", {}, QUICK
        ),
        "fine": TaskProgram("fine", "v", "def run(ctx, page): ctx.emit({})", "t.py"),
    }
    group: list[Any] = [("d", {}, [(1, 0, page())])]
    with VmPool(programs, 1) as pool:
        looping = threading.Thread(target=pool.run, args=("loop", group))
        looping.start()
        count = 0
        while looping.is_alive():
            assert pool.run("fine", group)[0].runs[0].ok
            count += 1
        assert count
        assert pool.counts.stopped == 1


LOOPS_ON = """
def run(ctx, page):
    while page.trigger["loops"]:
        pass
    ctx.emit({})
"""


def test_a_device_s_task_is_quarantined_after_its_strikes(open_pool: Any, page: Any) -> None:
    limits = RunLimits(wall_time_ms=100, strikes=2)
    pool = open_pool(LOOPS_ON, limits=limits)

    def run(*loops: int) -> list[str]:
        groups = [(f"d{n}", {}, [(1, 0, page({"loops": on}))]) for n, on in enumerate(loops)]
        return [group.runs[0].error for group in pool.run("t", groups)]

    assert run(1, 0) == ["RunStopped", ""]
    assert run(0, 0) == ["", ""]
    assert run(1, 0) == ["RunStopped", ""]
    assert run(0, 0, 1) == ["Quarantined", "", "RunStopped"]
    (group,) = pool.run("t", [("d0", {}, [(1, 0, page({"loops": False}))] * 3)])
    assert [run.ok for run in group.runs] == [False] * 3
    assert "quarantined on device 'd0' after 2 runs" in group.runs[0].message


def test_a_task_that_must_be_stopped_everywhere_is_quarantined(open_pool: Any, page: Any) -> None:
    pool = open_pool(LOOPS_ON, limits=RunLimits(wall_time_ms=100, strikes=1))
    groups = [(f"d{n}", {}, [(1, 0, page({"loops": True}))]) for n in range(10)]
    assert {group.runs[0].error for group in pool.run("t", groups)} == {"RunStopped"}
    (group,) = pool.run("t", [("other", {}, [(1, 0, page({"loops": False}))])])
    assert group.runs[0].error == "Quarantined"
    assert "on all devices after 10 runs" in group.runs[0].message


class Unwell:
    """A VM that cannot be asked to stop."""

    task, run_at_hand, run_number = "t", None, 7

    def stop_run(self, **_: bool) -> bool:
        raise MemoryError


def test_what_fails_for_one_vm_leaves_the_others_watched(caplog: Any) -> None:
    stopped, is_done = threading.Event(), threading.Event()

    class Well(Unwell):
        def stop_run(self, **_: bool) -> bool:
            return True

    def job() -> None:
        if stopped.is_set():
            is_done.set()
        raise ValueError

    watchdog = Watchdog(lambda _: stopped.set(), lambda _: None)
    watchdog.every(0.001, job)
    for machine in (Unwell(), Well()):
        watchdog.watch(machine, 1.0)
    assert stopped.wait(60)
    assert is_done.wait(60)
    watchdog.close()
    assert "failed at one of them" in caplog.text


SCRIPT = """
import os, sys, time
from walle_stream.vm import watchdog
from walle_stream.vm.pool import VmPool
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.program import TaskProgram

def on_stuck(task, device_id):
    print(task, device_id, pool.counts.stopped, pool.counts.stuck, flush=True)
    os._exit(9)

watchdog.monotonic_ms = lambda: time.process_time() * 1000.0
source = "def run(ctx, page):\\n if ctx.device_id == 'd2': sum(range(10**15))"
row = ("a", "click", 1, 1, None)
run = (1, 0, ("p", "i", "none", None, row, [row]))
pool = VmPool({"t": TaskProgram("t", "v", source, "t.py", {}, RunLimits(wall_time_ms=50))}, 1, on_stuck)
pool.run("t", [("d0", {}, [run])])
pool.run("t", [("d1", {}, [run] * 3), ("d2", {}, [run]), ("d3", {}, [run])])
"""


def test_a_run_that_is_stuck_in_c_is_told_with_its_device() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (9, "t d2 1 1\n"), done.stderr


def test_pairs_that_are_quarantined_from_the_start_do_not_run(page: Any) -> None:
    program = TaskProgram("t", "v", LOOPS_ON, "t.py")
    groups = [(f"d{n}", {}, [(1, 0, page({"loops": False}))]) for n in range(3)]
    with VmPool({"t": program}, 1, quarantined=[("t", "d1"), ("gone", "d0")]) as pool:
        assert [group.runs[0].error for group in pool.run("t", groups)] == ["", "Quarantined", ""]


def test_strikes_count_within_a_batch(open_pool: Any, page: Any) -> None:
    pool = open_pool(LOOPS_ON, limits=RunLimits(wall_time_ms=150, strikes=2))
    loops, returns = page({"loops": True}), page({"loops": False})
    groups = [
        ("d0", {}, [(n, 0, loops) for n in range(50)]),
        ("d1", {}, [(1, 0, loops), (2, 0, returns), (3, 0, loops), (4, 0, returns)]),
        ("d2", {}, [(1, 0, returns)]),
    ]
    first, second, third = pool.run("t", groups)
    assert [run.error for run in first.runs] == ["RunStopped"] * 2 + ["Quarantined"] * 48
    assert [run.error for run in second.runs] == ["RunStopped", "", "RunStopped", "Quarantined"]
    assert [run.error for run in third.runs] == [""]
    assert pool.counts.stopped == 4
