"""The life of VMs as metrics: a figure for each of its steps."""

from types import SimpleNamespace
from typing import Any

import pytest

from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.figures.metrics import render_metrics
from walle_stream.app.figures.status import HostStatus
from walle_stream.ports import Unread
from walle_stream.vm.counts import VmCounts
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.wire.ledger import Ledger, TaskBytes
from walle_stream.wire.rows import Counters, TaskCounts

pytestmark = pytest.mark.vm

KEEPS_NOTHING = "def run(ctx, page): ctx.emit({})"
KEEPS = "SEEN = []\ndef run(ctx, page): SEEN.append(1); ctx.emit({})"


def groups(count: int) -> Any:
    row = ("page_exit", "page_exit", 1, 1, None)
    return [("d", {}, [(n, 0, ("p", "i", "exit", 1, row, [row])) for n in range(count)])]


def program(source: str, version: str = "1") -> TaskProgram:
    return TaskProgram("t", version, source, "t.py")


def observed(statuses: Any, counts: Any, machines: Any, names: Any = (), hosts: Any = ()) -> Any:
    return SimpleNamespace(
        status=lambda: statuses, vm_status=lambda: (counts, machines), task_names=names,
        host_status=lambda: hosts, sink_lags={}, service_counts={},
    )  # fmt: skip


def test_every_step_of_a_vm_s_life_is_counted() -> None:
    with VmPool({}, PoolLimits(warm_vms=1, max_runs=4)) as pool:
        assert pool.counts == VmCounts(created=1, warmed=1)
        pool.install(program(KEEPS))
        for maker in pool._makers:
            maker.join()
        assert pool.counts == VmCounts(created=2, warmed=2, bound=1)
        pool.run("t", groups(3))
        pool.run("t", groups(2))  # five runs are enough
        counts = VmCounts(
            created=2, warmed=2, bound=1, resets=5, recycled=1, destroyed=1, calls=2, runs=5
        )
        assert pool.counts == counts
        pool.install(program(KEEPS_NOTHING, "2"))
        for maker in pool._makers:
            maker.join()
        pool.run("t", groups(1))
        counts = VmCounts(
            created=3, warmed=3, bound=2, resets=5, recycled=1, destroyed=1, calls=3, runs=6
        )
        assert pool.counts == counts
    assert pool.counts.destroyed == 3


def test_every_figure_is_a_metric() -> None:
    with VmPool({"t": program(KEEPS)}, 1) as pool:
        pool.run("t", groups(3))
        lines = render_metrics(observed([], pool.counts, pool.machines)).splitlines()
    steps = {"created": 1, "warmed": 0, "bound": 1, "runs": 3, "resets": 3, "recycled": 0}
    steps |= {"destroyed": 0, "calls": 1, "crashes": 0, "stopped": 0, "stuck": 0}
    assert set(steps) == set(VmCounts.__struct_fields__)
    assert {f"walle_vm_{name}_total {value}" for name, value in steps.items()} <= set(lines)
    assert any(line.startswith('walle_vm_runs{task="t",vm=') for line in lines)


def test_tasks_and_what_is_unread_are_metrics_with_labels() -> None:
    status = PartitionStatus(
        number=0, counters=Counters(task_runs=3, task_failures=1), latencies=Latencies(),
        active_devices=0, outbox_bytes=0, watermark_ms=-1, run_events=0,
        ledger=Ledger({"t": TaskBytes(features=2)}), tasks={"t": TaskCounts(3, 1)},
    )  # fmt: skip
    hosts = [HostStatus.of(1, 0.25, Unread(size_bytes=75), pid=7, step="running")]
    run = observed([status], VmCounts(), [], ["t", "never"], hosts)
    lines = render_metrics(run).splitlines()
    expected = {
        'walle_task_runs_total{task="t"} 3',
        'walle_task_failures_total{task="t"} 1',
        'walle_task_features_total{task="t"} 2',
        'walle_task_runs_total{task="never"} 0',
        'walle_unread{host="1"} 0.75',
        'walle_unread_bytes{host="1"} 75',
    }
    assert expected <= set(lines)
    assert sum(line.startswith("# TYPE walle_task_runs_total ") for line in lines) == 1
    assert not any(line.startswith("walle_unread_rows{") for line in lines)
