"""Every limit under every isolation policy: who is beyond it fails, alone."""

from typing import Any

import pytest

from walle_stream.vm.limits import RunLimits
from walle_stream.vm.memory import resident_bytes
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("cpu_clock")]

every_policy = pytest.mark.parametrize("isolation", ["shared", "device", "process"])

CATCHES = """while True:
            try:
                while True: pass
            except BaseException: pass"""
LIMITS: Any = {
    "wall time": ({}, CATCHES, "RunStopped", "limits.wallTime"),
    "steps": (
        {"steps": 500, "wall_time_ms": 60_000},
        "while True: pass",
        "StepsExceeded",
        "limits.steps",
    ),
    "output": (
        {"output_bytes": 1_000},
        "ctx.emit({'x': 'y' * 2_000})",
        "ValueError",
        "limits.outputBytes",
    ),
    "state": (
        {"state_bytes": 1_000},
        "ctx.state.put('k', 'y' * 2_000)",
        "ValueError",
        "limits.stateBytes",
    ),
    "rows": (
        {"emits": 10},
        "for n in range(20): ctx.emit({'n': n})",
        "ValueError",
        "limits.emits",
    ),
}


def three(page: Any, **second: Any) -> Any:
    return [(f"d{n}", {}, [(1, 0, page(second if n == 1 else None))]) for n in range(3)]


def program(source: str, limits: RunLimits, isolation: Any) -> dict[str, TaskProgram]:
    return {"t": TaskProgram("t", "v", source, "t.py", limits=limits, isolation=isolation)}


@every_policy
@pytest.mark.parametrize("name", LIMITS)
def test_a_run_beyond_a_limit_fails_alone(
    page: Any, quick_limits: Any, name: str, isolation: str
) -> None:
    given, body, error, words = LIMITS[name]
    source = (
        f"def run(ctx, page):\n    if page.trigger.get('goes'):\n        {body}\n    ctx.emit({{}})"
    )
    limits = quick_limits(isolation, **given)
    with VmPool(program(source, limits, isolation), 1) as pool:
        for _ in range(2):
            results = pool.run("t", three(page, goes=1))
            assert [group.runs[0].error for group in results] == ["", error, ""]
            assert words in results[1].runs[0].message
            assert [group.runs[0].emits for group in results] == [
                [(b"{}", b"")],
                [],
                [(b"{}", b"")],
            ]
        assert (pool.counts.crashes, pool.counts.stuck) == (0, 0)


@every_policy
def test_log_lines_beyond_the_limit_are_counted(page: Any, isolation: str) -> None:
    source = (
        "def run(ctx, page):\n    for n in range(page.trigger.get('n') or 1): ctx.log.info('x')"
    )
    with VmPool(program(source, RunLimits(log_lines=5), isolation), 1) as pool:
        first, second, third = (group.runs[0] for group in pool.run("t", three(page, n=50)))
    assert [run.ok for run in (first, second, third)] == [True] * 3
    assert [len(run.logs) for run in (first, third)] == [1, 1]
    assert len(second.logs) == 6
    assert "45" in second.logs[-1][1]


@every_policy
def test_strikes_put_a_task_out_on_one_device(page: Any, quick_limits: Any, isolation: str) -> None:
    source = "def run(ctx, page):\n    while page.trigger.get('goes'): pass\n    ctx.emit({})"
    with VmPool(program(source, quick_limits(isolation, strikes=2), isolation), 1) as pool:
        seen = [
            [group.runs[0].error for group in pool.run("t", three(page, goes=1))] for _ in range(3)
        ]
    assert seen == [["", "RunStopped", ""]] * 2 + [["", "Quarantined", ""]]


EATS = """
def run(ctx, page):
    kept = []
    while page.trigger.get("eats"):
        kept.append(bytes(1_000_000) + b"x")
    ctx.emit({})
"""


@every_policy
def test_a_run_that_eats_memory_fails_alone(page: Any, isolation: str) -> None:
    bound = PoolLimits(memory_bytes=resident_bytes() + 100_000_000)
    with VmPool(program(EATS, RunLimits(wall_time_ms=60_000), isolation), bound) as pool:
        results = pool.run("t", three(page, eats=1))
        # what a process may have is its own limit, not its host's
        error = "MemoryError" if isolation == "process" else "RunStopped"
        assert [group.runs[0].error for group in results] == ["", error, ""]
        assert pool.counts.recycled == (isolation != "process")
        assert pool.run("t", three(page)[:1])[0].runs[0].ok


ENDS = """
import sys
source = "def run(ctx, page):\\n    if ctx.device_id == 'b': sum(range(10**15))\\n    ctx.emit({})"
def on_stuck(name, device_id):
    print("host ends", name, device_id, flush=True)
    os._exit(77)
if sys.argv[1] != "process":
    watch_by_cpu()
limit_ms = 1_500 if sys.argv[1] == "process" else 50
given = task(source, limits=RunLimits(wall_time_ms=limit_ms), isolation=sys.argv[1])
with VmPool(given, 1, on_stuck) as pool:
    for _ in range(2):
        print([group.runs[0].error for group in pool.run("t", groups("a", "b", "c"))])
    print(pool.counts.crashes, flush=True)
"""


@every_policy
def test_a_loop_in_c_ends_its_process(run_child: Any, isolation: str) -> None:
    done = run_child(ENDS, isolation)
    if isolation == "process":
        out = "['', 'Quarantined', '']\n" * 2 + "1\n"
        assert (done.returncode, done.stdout) == (0, out)
    else:
        assert (done.returncode, done.stdout) == (77, "host ends t b\n")
