"""VMs come and go: private ones, warm ones, new versions, idle and worn-out ones."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from walle_stream.errors import ScriptError, VmError
from walle_stream.vm.interpreters import live_count
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import build_package
from walle_stream.vm.package.reader import PackagedTask, read_package
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram

pytestmark = pytest.mark.vm

COUNT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.emit({"n": n, "d": ctx.device_id})
"""


def program(source: str = COUNT, version: str = "1", isolation: Any = "shared") -> TaskProgram:
    return TaskProgram("t", version, source, "t.py", isolation=isolation)


def groups_of(page: Any, *devices: str) -> Any:
    return [(device, {}, [(1, 0, page()), (2, 0, page())]) for device in devices]


def test_a_private_vm_serves_one_device_and_gives_what_a_shared_one_gives(page: Any) -> None:
    groups = groups_of(page, "a", "b", "c")
    with (
        VmPool({"t": program(isolation="device")}, PoolLimits(device_vms=2)) as private,
        VmPool({"t": program()}, 1) as shared,
    ):
        assert private.machines == []  # made when the device first needs it
        for _ in range(2):
            assert private.run("t", groups) == shared.run("t", groups)
        assert len(private.machines) == 2
        assert (private.counts.created, private.counts.calls) == (6, 6)
        private.run("t", groups_of(page, "c"))
        assert private.counts.created == 6  # it was still there


def test_private_vms_of_one_device_are_never_used_by_another(page: Any) -> None:
    # a VM's own memory of itself, which no guard of a script reaches
    with VmPool({"t": program(isolation="device")}, PoolLimits(device_vms=8)) as pool:
        for _ in range(3):
            pool.run("t", groups_of(page, *"abcdefgh"))
        assert [status.calls for status in pool.machines] == [3] * 8
        assert [status.runs for status in pool.machines] == [6] * 8


def test_many_threads_share_few_private_vms(page: Any) -> None:
    with VmPool({"t": program(isolation="device")}, PoolLimits(device_vms=2)) as pool:
        with ThreadPoolExecutor(4) as threads:
            futures = [
                threads.submit(pool.run, "t", groups_of(page, f"d{n % 5}")) for n in range(20)
            ]
            found = [future.result()[0] for future in futures]
        assert [group.device_id for group in found] == [f"d{n % 5}" for n in range(20)]
        assert all(group.state == {"n": b"2"} for group in found)
        assert len(pool.machines) <= 2


def test_a_warm_vm_takes_the_next_task_and_is_replaced(page: Any) -> None:
    before = live_count()
    with VmPool({}, PoolLimits(warm_vms=1)) as pool:
        assert [status.task for status in pool.machines] == [""]
        thread_names = {thread.name for thread in threading.enumerate()}
        assert "walle-vm" in thread_names
        pool.install(program())
        assert pool.run("t", groups_of(page, "a"))[0].state == {"n": b"2"}
        for thread in threading.enumerate():
            if thread.name == "walle-vm-maker":
                thread.join()
        assert sorted(status.task for status in pool.machines) == ["", "t"]
    assert live_count() == before


def test_a_new_version_takes_an_old_ones_place_while_calls_run(page: Any) -> None:
    other = COUNT.replace("+ 1", "+ 100")
    with VmPool({"t": program()}, 2) as pool, ThreadPoolExecutor(2) as threads:
        is_over = threading.Event()

        def work() -> set[bytes]:
            seen = set()
            while not is_over.is_set():
                seen.add(pool.run("t", groups_of(page, "a"))[0].state["n"])
            return {value for value in seen if value is not None}

        futures = [threads.submit(work) for _ in range(2)]
        pool.install(program(other, "2"))
        assert pool.run("t", groups_of(page, "a"))[0].state == {"n": b"200"}
        is_over.set()
        assert set.union(*(future.result() for future in futures)) <= {b"2", b"200"}
        assert len(pool.machines) <= 2


def test_a_version_that_cannot_be_loaded_changes_nothing(page: Any) -> None:
    with VmPool({"t": program()}, 1) as pool:
        for source in ("def run(ctx): pass", "1 / 0\ndef run(ctx, page): pass"):
            with pytest.raises(ScriptError):
                pool.install(program(source, "2"))
        assert pool.run("t", groups_of(page, "a"))[0].state == {"n": b"2"}
        pool.uninstall("t")
        pool.uninstall("t")
        with pytest.raises(VmError, match="not in this pool"):
            pool.run("t", groups_of(page, "a"))
    assert pool.machines == []
    with pytest.raises(VmError, match="closed"):
        pool.install(program())


def test_counts_outlive_the_vms_that_made_them(page: Any) -> None:
    with VmPool({"t": program()}, 1) as pool:
        pool.run("t", groups_of(page, "a", "b"))
        pool.install(program(version="2"))
        pool.run("t", groups_of(page, "a"))
        pool.uninstall("t")
        counts = pool.counts
        assert (counts.created, counts.calls, counts.runs) == (2, 2, 6)
    assert pool.counts.destroyed == counts.created


def test_a_vm_that_made_enough_runs_is_replaced(page: Any) -> None:
    with VmPool({"t": program()}, PoolLimits(max_runs=4)) as pool:
        for _ in range(6):
            assert pool.run("t", groups_of(page, "a"))[0].state == {"n": b"2"}
        assert (pool.counts.created, pool.counts.destroyed, pool.counts.runs) == (3, 3, 12)


def test_idle_vms_go_and_one_shared_one_stays(page: Any) -> None:
    with VmPool({"t": program()}, PoolLimits(vms=3)) as pool:
        pool.sweep()
        pool.run("t", groups_of(page, "a"))
        pool.sweep()
        assert [status.calls for status in pool.machines] == [1]
        pool.sweep()
        assert len(pool.machines) == 1
    with VmPool({"t": program(isolation="device")}, 1) as pool:
        pool.run("t", groups_of(page, "a", "b"))
        pool.sweep()
        pool.run("t", groups_of(page, "b"))
        pool.sweep()
        assert [status.calls for status in pool.machines] == [2]
        pool.sweep()
        assert pool.machines == []


def test_the_watchdog_sweeps(page: Any) -> None:
    with VmPool({"t": program(isolation="device")}, PoolLimits(idle_s=0.01)) as pool:
        pool.run("t", groups_of(page, "a"))
        while pool.machines:
            threading.Event().wait(0.005)
        assert pool.counts.destroyed == 1


LARGE = """
def run(ctx, page):
    ctx.emit({"n": 1, "text": "x" * 5_000}, b"e" * 40_000)
    ctx.call_cloud("s", {"text": "y" * 3_000})
    ctx.state.put("k", "z" * 30_000)
    ctx.state.put("gone", 1)
    ctx.state.delete("gone")
    ctx.log.info("l")
"""


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_large_results_come_back_whole(page: Any, isolation: Any) -> None:
    large = TaskProgram("t", "v", LARGE, "t.py", isolation=isolation)
    with VmPool({"t": large}, 1) as pool:
        for count in (1, 2, 40):
            groups: Any = [(f"d{n}", {}, [(1, 0, page())] * 2) for n in range(count)]
            for group in pool.run("t", groups):
                assert group.state == {"k": b'"' + b"z" * 30_000 + b'"', "gone": None}
                for run in group.runs:
                    ((feature, encoding),) = run.emits
                    assert feature == b'{"n":1,"text":"' + b"x" * 5_000 + b'"}'
                    assert encoding == b"e" * 40_000
                    assert run.calls == [("s", b'{"text":"' + b"y" * 3_000 + b'"}')]
                    assert run.logs == [("info", "l")]


HOSTILE = """
def run(ctx, page):
    if page.trigger.get("loops"):
        sum(range(10 ** 12))
    if page.trigger.get("eats"):
        ctx.eaten = [b"x" * 10 ** 7 for _ in range(1000)]
    ctx.emit({"d": ctx.device_id})
"""
# Whichever of its limits a run that eats memory meets first: the address space, the watchdog
# of memory, or on a slow machine the wall time.
STOPPED_WHILE_EATING = {"MemoryError", "Quarantined", "AttributeError", "RunStopped"}


def test_a_run_that_ends_its_process_ends_no_other(page: Any) -> None:
    hostile = TaskProgram(
        "t", "v", HOSTILE, "t.py", limits=RunLimits(wall_time_ms=1_500), isolation="process"
    )
    with VmPool({"t": hostile}, 1, lambda *_: pytest.fail("the host need not end")) as pool:
        given = [("a", {}), ("b", {"loops": 1}), ("c", {})]
        groups: Any = [(name, {}, [(1, 0, page(contents or None))]) for name, contents in given]
        for _ in range(2):
            results = pool.run("t", groups)
            assert [group.runs[0].error for group in results] == ["", "Quarantined", ""]
        assert (pool.counts.crashes, pool.counts.created) == (1, 2)
        (eater,) = pool.run("t", [("e", {}, [(1, 0, page({"eats": 1}))])])
        assert eater.runs[0].error in STOPPED_WHILE_EATING
        assert pool.run("t", groups)[0].runs[0].ok


def test_a_package_runs_from_a_warm_vm(page: Any) -> None:
    source = """
import datetime, statistics
from decimal import Decimal
def run(ctx, page):
    day = datetime.datetime.fromtimestamp(ctx.clock.now_ms() / 1000, datetime.UTC)
    ctx.emit({
        "mean": statistics.mean([1, 2, 6]), "price": str(Decimal("1.10") * 3),
        "day": day.strftime("%A"), "parsed": datetime.datetime.strptime("2024", "%Y").year,
        "text": ctx.resource("a.txt").decode(),
    })
"""
    limits = RunLimits(1_000, 10, 10, 1_000, 3, 0, 1_000)
    task = PackagedTask("t", "2", 1, "t.py", (("page_exit",),), None, {}, limits)
    package = read_package(build_package(task, source, {"a.txt": b"hello"}))
    with VmPool({}, PoolLimits(warm_vms=1)) as pool:
        pool.install(package.program())
        (run,) = pool.run("t", [("d", {}, [(1, 0, page())])])[0].runs
        assert run.message == ""
        assert run.emits[0][0] == (
            b'{"mean":3,"price":"3.30","day":"Thursday","parsed":2024,"text":"hello"}'
        )


def test_a_device_that_waits_comes_before_those_who_come_again(page: Any) -> None:
    with (
        VmPool({"t": program(isolation="device")}, PoolLimits(device_vms=1)) as pool,
        ThreadPoolExecutor(2) as threads,
    ):
        task_pool, is_over = pool._task_pools["t"], threading.Event()

        def work(name: str) -> int:
            after = 0
            while not is_over.is_set():
                is_waited_for = bool(task_pool._waiters)
                pool.run("t", groups_of(page, name))
                after += is_waited_for
            return after

        futures = [threads.submit(work, name) for name in ("a", "b")]
        for _ in range(5):
            assert pool.run("t", groups_of(page, "c"))[0].state == {"n": b"2"}
        is_over.set()
        assert sum(future.result() for future in futures) > 0
        assert pool.counts.calls >= 5


LOOPS = """
def run(ctx, page):
    while page.trigger.get("loops"): pass
    ctx.emit({"d": ctx.device_id})
"""


def test_a_process_that_somebody_else_kills_is_one_strike(page: Any) -> None:
    limits = RunLimits(wall_time_ms=60_000, strikes=2)
    task = TaskProgram("t", "v", LOOPS, "t.py", limits=limits, isolation="process")
    groups: Any = [
        (name, {}, [(1, 0, page({"loops": 1} if name == "b" else None))]) for name in "abc"
    ]
    with VmPool({"t": task}, 1) as pool, ThreadPoolExecutor(1) as threads:
        future = threads.submit(pool.run, "t", groups)
        for number in (1, 2):
            while not future.done():
                machines = pool._task_pools["t"].machines
                at_hand = machines[0].run_at_hand if machines else None
                if at_hand is not None and at_hand[0] == "b" and pool.counts.created == number:
                    os.kill(machines[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
                    break
        results = future.result()
        assert [group.runs[0].error for group in results] == ["", "Quarantined", ""]
        assert (pool.counts.crashes, pool.counts.created) == (2, 3)
