import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import TYPE_CHECKING, Any

import pytest

from walle_stream.errors import FrameError, VmCrashedError, VmError
from walle_stream.vm import virtual_machine
from walle_stream.vm.counts import VmCounts
from walle_stream.vm.interpreters import Interpreter, live_count
from walle_stream.vm.machine import BUFFER_BYTES
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.task_pool import called_cpu_ms
from walle_stream.vm.virtual_machine import VirtualMachine

if TYPE_CHECKING:
    from walle_stream.vm.results import DeviceGroup

pytestmark = pytest.mark.vm

COUNT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    if n % 5 == 0:
        raise ValueError(n)
    x = page.trigger.get("x")
    ctx.emit({"n": n, "d": ctx.device_id, "r": ctx.random.random(), "x": x}, b"e")
"""


def test_vms_are_made_before_traffic_and_destroyed_at_close(open_pool: Any, page: Any) -> None:
    before = live_count()
    pool = open_pool(COUNT, size=2)
    assert live_count() == before + 2
    pool.run("t", [("d", {}, [(1, 0, page())] * 3)])
    assert pool.counts == VmCounts(created=2, bound=2, calls=1, runs=3)
    pool.close()
    pool.close()
    assert live_count() == before
    assert pool.counts.destroyed == 2
    with pytest.raises(VmError, match="closed"):
        pool.run("t", [("d", {}, [(1, 0, page())])])


def test_a_pool_closes_itself_at_the_end_of_a_block(page: Any) -> None:
    before = live_count()
    with VmPool({"t": TaskProgram("t", "v", COUNT, "t.py")}, 1) as pool:
        assert pool.run("t", [("d", {}, [(1, 0, page())])])[0].state == {"n": b"1"}
    assert live_count() == before


def test_no_groups_need_no_vm_and_an_unknown_task_is_named(open_pool: Any, page: Any) -> None:
    pool = open_pool(COUNT)
    assert pool.run("t", []) == []
    with pytest.raises(VmError, match="'other'"):
        pool.run("other", [("d", {}, [(1, 0, page())])])


def test_a_batch_gives_what_its_runs_give_one_by_one(open_pool: Any, page: Any) -> None:
    pool = open_pool(COUNT)
    names = ("a", "b", "ç")
    runs = [(n, n, page({"x": n})) for n in range(1, 13)]
    at_once = pool.run("t", [(name, {"n": b"2"}, runs) for name in names])
    for name, together in zip(names, at_once, strict=True):
        state: dict[str, bytes] = {"n": b"2"}
        alone = []
        for run in runs:
            (group,) = pool.run("t", [(name, state, [run])])
            for key, value in group.state.items():
                assert value is not None
                state[key] = value
            alone += group.runs
        assert together.runs == alone
        assert together.state == ({} if state == {"n": b"2"} else state)


def test_two_threads_run_side_by_side(open_pool: Any, page: Any) -> None:
    pool = open_pool(COUNT, size=2)
    barrier = threading.Barrier(2)

    def work(name: str) -> list[bytes]:
        barrier.wait()
        state: dict[str, bytes] = {}
        for n in range(200):
            (group,) = pool.run("t", [(name, state, [(n, 0, page())] * 4)])
            state.update({key: value or b"" for key, value in group.state.items()})
        return [state["n"]]

    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(work, name) for name in ("a", "b")]
        finals = [future.result() for future in futures]
    # a failing run does not count: from 4 on, every run fails
    assert finals == [[b"4"], [b"4"]]
    assert pool.counts.created == 2


def test_more_threads_than_vms_wait_for_one(open_pool: Any, page: Any) -> None:
    pool = open_pool("def run(ctx, page): ctx.emit({'d': ctx.device_id})")
    with ThreadPoolExecutor(6) as threads:
        results = list(
            threads.map(lambda n: pool.run("t", [(f"d{n}", {}, [(1, 0, page())])]), range(60))
        )
    assert [groups[0].device_id for groups in results] == [f"d{n}" for n in range(60)]
    assert pool.counts.created == 1


def test_tasks_have_vms_of_their_own(page: Any) -> None:
    programs = {
        name: TaskProgram(name, "v", f"def run(ctx, page): ctx.emit({{'t': '{name}'}})", "t.py")
        for name in ("one", "two")
    }
    with VmPool(programs, 1) as pool:
        group: list[DeviceGroup] = [("d", {}, [(1, 0, page())])]
        assert pool.run("one", group)[0].runs[0].emits[0][0] == b'{"t":"one"}'
        assert pool.run("two", group)[0].runs[0].emits[0][0] == b'{"t":"two"}'


def serving(code: str) -> CodeType:
    """Code for the VM's thread that answers its first order in its own way."""
    text = f"""
import os, struct
os.read(_wake, 8)
ORDER, N = struct.unpack_from("<QQ", _session._inbox)
def header(*values): struct.pack_into("<4sIQQQ", _session._outbox, 0, b"WVM1", *values)
{code}
os.write(_done, (1).to_bytes(8, "little"))
os.read(_wake, 8)
"""
    return compile(text, "x", "exec")


def test_a_call_without_completion_mark_is_run_again_in_a_fresh_vm(
    open_pool: Any, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, codes = virtual_machine._SERVE, [serving("pass")]
    execute = Interpreter.execute

    def once(self: Interpreter, code: CodeType) -> str | None:
        return execute(self, codes.pop() if codes and code is good else code)

    monkeypatch.setattr(Interpreter, "execute", once)
    pool = open_pool(COUNT)
    (group,) = pool.run("t", [("d", {"n": b"7"}, [(1, 0, page())])])
    assert group.state == {"n": b"8"}
    assert pool.counts == VmCounts(created=2, bound=2, destroyed=1, calls=1, runs=1, crashes=1)


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "raise MemoryError",
        "raise SystemExit",
        "_session._order_number = N; _session._finish(N + 1, [], b'')",
    ],
    ids=["nothing", "memory", "exit", "stale"],
)
def test_two_calls_without_completion_mark_are_a_crash(
    open_pool: Any, page: Any, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    group: list[DeviceGroup] = [("d", {}, [(1, 0, page())])]
    with monkeypatch.context() as patch:
        patch.setattr(virtual_machine, "_SERVE", serving(code))
        pool = open_pool(COUNT)
        with pytest.raises((VmCrashedError, FrameError)):
            pool.run("t", group)
    assert pool.counts.crashes == 2
    assert pool.run("t", group)[0].state == {"n": b"1"}
    assert pool.counts.created == 3


@pytest.mark.parametrize(
    "code",
    [
        "_session._order_number = N; _session._result = (N, [1, 0, 0], [], 0); _session.write_pending()",
        "_session._order_number = N; _session._result = (N, [1, 0, 0, 0], [b'x'], 1); _session.write_pending()",
        "header(9, N, 0, 0)",
        "header(2, N, 1 << 62, 0)",
        "header(2, N, 0, 0)",
        "header(1, N, 1 << 62, 0)",
        "header(1, N, 0, 1 << 62)",
    ],
)
def test_a_malformed_frame_destroys_the_vm(
    open_pool: Any, page: Any, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(virtual_machine, "_SERVE", serving(code))
        pool = open_pool(COUNT)
        with pytest.raises(FrameError):
            pool.run("t", [("d", {}, [(1, 0, page())])])
    assert (pool.counts.crashes, pool.counts.destroyed) == (2, 2)


def test_a_page_that_is_not_plain_is_refused_and_costs_no_vm(open_pool: Any) -> None:
    pool = open_pool(COUNT)
    with pytest.raises(FrameError, match="plain values"):
        pool.run("t", [("d", {}, [(1, 0, (object(),))])])
    assert pool.counts.destroyed == 0


def test_large_batches_and_results_grow_the_buffers_and_give_them_back(
    open_pool: Any, page: Any
) -> None:
    pool = open_pool("def run(ctx, page): ctx.emit({'x': page.trigger['x']})")
    machine = pool._task_pools["t"].idle[0]
    for size in (10, 400_000, 20, 6_000_000, 5):
        text = "y" * size
        (group,) = pool.run("t", [("d", {}, [(1, 0, page({"x": text}))])])
        assert group.runs[0].emits == [(f'{{"x":"{text}"}}'.encode(), b"")]
        assert pool._task_pools["t"].idle == [machine]
    assert len(machine._inbox) == len(machine._outbox) == BUFFER_BYTES


def test_buffers_may_grow_before_the_vm_s_thread_looks_at_them(
    open_pool: Any, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_grown = threading.Event()
    serve, take = VirtualMachine._serve, VirtualMachine._take_buffers

    def serve_late(self: VirtualMachine, *given: Any) -> None:
        has_grown.wait()
        serve(self, *given)

    def note(self: VirtualMachine, inbox_bytes: int, outbox_bytes: int) -> None:
        take(self, inbox_bytes, outbox_bytes)
        if inbox_bytes > BUFFER_BYTES:
            has_grown.set()

    monkeypatch.setattr(VirtualMachine, "_serve", serve_late)
    monkeypatch.setattr(VirtualMachine, "_take_buffers", note)
    pool = open_pool("def run(ctx, page): ctx.emit({'n': len(page.trigger['x'])})")
    (group,) = pool.run("t", [("d", {}, [(1, 0, page({"x": "y" * 400_000}))])])
    assert group.runs[0].emits == [(b'{"n":400000}', b"")]
    assert pool.counts.crashes == 0


def test_calls_run_in_the_vm_s_own_thread_whoever_calls(open_pool: Any, page: Any) -> None:
    pool = open_pool(COUNT, size=1)
    names = [thread.name for thread in threading.enumerate()]
    assert "walle-vm-t" in names
    assert threading.current_thread() is threading.main_thread()
    assert pool.run("t", [("d", {}, [(1, 0, page())])])[0].runs[0].ok
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(pool.run, "t", [("d", {}, [(1, 0, page())])])
        assert future.result()[0].runs[0].ok
    pool.close()
    assert "walle-vm-t" not in [thread.name for thread in threading.enumerate()]


def test_closing_lets_a_running_call_finish(open_pool: Any, page: Any) -> None:
    pool = open_pool("def run(ctx, page): ctx.emit({'n': sum(range(3_000_000))})")
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(pool.run, "t", [("d", {}, [(1, 0, page())])])
        while pool._task_pools["t"].idle:
            pass
        pool.close()
        assert future.result()[0].runs[0].ok
    assert pool.counts.destroyed == 1


SCRIPT = """
import sys
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.task_pool import called_cpu_ms
source = "import datetime, json, decimal, hashlib, statistics\\ndef run(ctx, page): ctx.emit({})"
row = ("a", "click", 1, 1, None)
pool = VmPool({"t": TaskProgram("t", "v", source, "t.py")}, 3)
assert pool.run("t", [("d", {}, [(1, 0, ("p", "i", "none", None, row, [row]))])])[0].runs[0].ok
print("done", flush=True)
if sys.argv[1] == "fail":
    raise SystemExit(7)
"""


@pytest.mark.parametrize(("how", "status"), [("end", 0), ("fail", 7)])
def test_a_process_that_forgets_to_close_its_pool_ends_cleanly(how: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "done\n", "")


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_what_vms_work_is_told_to_the_thread_that_called_them(page: Any, isolation: Any) -> None:
    source = "def run(ctx, page):\n    sum(range(3_000_000))\n"
    program = TaskProgram("t", "v1", source, "t.py", isolation=isolation)
    before_ms = called_cpu_ms()
    with VmPool({"t": program}, 1) as pool:
        pool.run("t", [("d", {}, [(1, 0, page())])])
        found_ms = called_cpu_ms() - before_ms
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(called_cpu_ms).result() == 0.0
    assert found_ms > 1.0  # that much work takes more on any machine
