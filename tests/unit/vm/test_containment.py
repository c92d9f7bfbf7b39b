"""Doubtful calls: process VMs beside the task's own, with one quarantine."""

import logging

import pytest

from walle_stream.errors import VmClosedError, VmStartError
from walle_stream.vm import containment
from walle_stream.vm import pool as pool_module
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.process.machine import ProcessMachine
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.virtual_machine import VirtualMachine

pytestmark = pytest.mark.vm

SCRIPT = """
def run(ctx, page):
    if page.trigger.get("bomb"):
        chain = iter([1])
        for _ in range(300_000):
            chain = map(int, chain)
        next(chain, None)
    ctx.state.put("n", ctx.state.get("n", 0) + 1)
    ctx.emit({"device": ctx.device_id})
"""


def program(isolation="shared", source=SCRIPT, **limits):
    return TaskProgram("t", "v", source, "t.py", limits=RunLimits(**limits), isolation=isolation)


@pytest.fixture
def groups(page):
    def make(*bombs):
        return [(name, {}, [(1, 0, page({"bomb": 1} if name in bombs else {}))]) for name in "abc"]

    return make


def emits(results):
    return [group.runs[0].emits for group in results]


@pytest.mark.parametrize("isolation", ["shared", "device"])
def test_a_run_that_would_end_the_process_is_quarantined_in_all_vms(isolation, groups):
    out = []
    with VmPool(
        {"t": program(isolation)}, 1, None, (), None, lambda *pair: out.append(pair)
    ) as vms:
        plain = vms.run("t", groups())
        first = vms.run("t", groups("b"), is_doubtful=True)
        assert [group.runs[0].ok for group in first] == [True, False, True]
        assert first[1].runs[0].error == "Quarantined"
        assert "device 'b' after 3 runs" in first[1].runs[0].message
        assert [first[0], first[2]] == [plain[0], plain[2]]
        assert out == [("t", "b")]
        # neither in a process VM nor in its own: the bomb would kill this test
        for is_doubtful in (True, False):
            assert vms.run("t", groups("b"), is_doubtful=is_doubtful) == first
        assert out == [("t", "b")]
        assert vms.counts.crashes == 3


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_where_runs_go(isolation, groups):
    with VmPool({"t": program(isolation)}, 1) as vms:
        task_pool = vms._task_pools["t"]
        plain = vms.run("t", groups())
        kind = ProcessMachine if isolation == "process" else VirtualMachine
        assert {type(machine) for machine in task_pool.machines} == {kind}
        before = vms.counts
        assert vms.run("t", groups(), is_doubtful=True) == plain
        after, alive = vms.counts, vms.machines
        others = task_pool.and_contained[1:]
        assert len(others) == (isolation != "process")
        for other in others:
            assert {type(machine) for machine in other.machines} == {ProcessMachine}
            assert other.quarantine is task_pool.quarantine
            assert other.machines[0].serial in {status.serial for status in alive}
        assert after.created - before.created == len(others)
        assert after.runs - before.runs == 3


def test_a_call_without_doubt_makes_no_process(groups):
    with VmPool({"t": program()}, 1) as vms:
        vms.run("t", groups())
        assert vms._task_pools["t"].and_contained == [vms._task_pools["t"]]


def test_its_vms_are_watched_and_blamed_runs_that_do_not_obey_are_out(groups):
    endless = "def run(ctx, page):\n    if page.trigger.get('bomb'): sum(range(10 ** 13))\n"
    out = []
    given = {"t": program(source=endless, wall_time_ms=1_500)}
    with VmPool(given, 1, None, (), None, lambda *pair: out.append(pair)) as vms:
        results = vms.run("t", groups("c"), is_doubtful=True)
        assert [group.runs[0].error for group in results] == ["", "", "Quarantined"]
        assert out == [("t", "c")]
        assert (vms.counts.stuck, vms.counts.crashes) == (0, 1)


def test_its_vms_go_with_the_task(groups):
    with VmPool({"t": program()}, 1) as vms:
        vms.run("t", groups(), is_doubtful=True)
        task_pool = vms._task_pools["t"]
        (machine,) = task_pool.and_contained[1].machines
        created = vms.counts.created
        vms.install(program())
        assert not task_pool.and_contained[1].machines
        assert machine.pid
        assert vms.counts.created == created + 1
        assert vms.counts.destroyed == 2
        with pytest.raises(VmClosedError):
            task_pool.contain(vms._make_contained)
        vms.run("t", groups(), is_doubtful=True)
        vms.uninstall("t")
    assert vms.counts.destroyed == 4
    assert not vms.machines


def test_its_vms_go_when_the_pool_closes(groups):
    with VmPool({"t": program()}, 1) as vms:
        vms.run("t", groups(), is_doubtful=True)
        task_pools = vms._task_pools["t"].and_contained
    assert [list(task_pool.machines) for task_pool in task_pools] == [[], []]


def test_what_fits_into_the_host_fits_into_a_contained_run(groups):
    large = "def run(ctx, page):\n    ctx.emit({'n': len(bytes(400_000_000))})\n"
    with VmPool({"t": program(source=large)}, PoolLimits(memory_bytes=2_000_000_000)) as vms:
        results = vms.run("t", groups()[:1], is_doubtful=True)
        assert emits(results) == [[(b'{"n":400000000}', b"")]]


@pytest.fixture
def no_processes(monkeypatch):
    def fail(*_):
        raise VmStartError("no processes here")

    monkeypatch.setattr(containment, "make_contained", fail)
    containment.measures_here.cache_clear()
    yield
    containment.measures_here.cache_clear()


def test_without_process_vms_runs_go_on_as_usual_and_it_is_said(no_processes, groups, caplog):
    with caplog.at_level(logging.WARNING), VmPool({"t": program()}, 1) as vms:
        for _ in range(2):
            assert len(vms.run("t", groups(), is_doubtful=True)) == 3
        assert vms._task_pools["t"].and_contained == [vms._task_pools["t"]]
    said = [r.getMessage() for r in caplog.records if r.name == containment.__name__]
    assert said == [
        "process VMs do not work here, so runs that may end a process are not contained: no processes here"
    ]


def test_quarantine_of_process_tasks_stays_with_the_process(groups):
    out = []
    given = {"t": program("process")}
    with VmPool(given, 1, None, (), None, lambda *pair: out.append(pair)) as vms:
        results = vms.run("t", groups("a"), is_doubtful=True)
        assert results[0].runs[0].error == "Quarantined"
    assert not out
    assert pool_module.measures_here() is not None
