"""Figures of a run as metrics for ``--metrics ADDR``.

The partition hosts count. This module only renames their figures for Prometheus at each scrape.
``observability`` has the format, ``metrics_server`` the server.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Protocol

import msgspec

from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.figures.metrics_server import open_metrics_server
from walle_stream.app.figures.status import HostStatus
from walle_stream.app.figures.task_figures import TaskFigures, task_figures
from walle_stream.cloud.calls import ServiceCounts, show_services
from walle_stream.cloud.sink_pump import show_lags
from walle_stream.vm.counts import VmCounts, VmStatus
from walle_stream.wire.metrics_text import Metrics
from walle_stream.wire.rows import Counters

_log = logging.getLogger(__name__)

_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
_GAUGES: Final = {
    "active_devices": "Devices in memory.",
    "outbox_bytes": "Bytes of frames without acknowledgement.",
    "watermark_ms": "Ingest watermark, epoch milliseconds.",
    "waiting_messages": "Messages of the cloud for devices that were never seen.",
}
_TASK_COUNTERS: Final = {
    "runs": "Runs of a task, cumulative for the data directory.",
    "failures": "Runs of a task that failed for good, cumulative for the data directory.",
    "features": "Features of a task, cumulative for the data directory.",
}
_UNREAD: Final = {
    "unread": "Share of the source that a host has yet to read.",
    "unread_rows": "Records of the source that a host has yet to read.",
    "unread_bytes": "Bytes of the source that a host has yet to read.",
    "unread_ms": "Milliseconds from the event that a host read last to the newest of its source.",
    "in_hand_events": "Events that a host has read and not committed.",
}


class ObservedRun(Protocol):
    """The parts of a run that metrics read."""

    is_ready: bool

    def status(self) -> list[PartitionStatus]:
        """Return the figures of all partitions."""

    def host_status(self) -> list[HostStatus]:
        """Return the state of each host and its unread input."""

    @property
    def task_names(self) -> list[str]:
        """Names of the definition's tasks."""

    def vm_status(self) -> tuple[VmCounts, list[VmStatus]]:
        """Return the counters of the pool, and its VMs."""

    @property
    def sink_lags(self) -> Mapping[str, int]:
        """Number of features that each sink has yet to take."""

    @property
    def service_counts(self) -> ServiceCounts:
        """Outcomes of service calls, by service."""
        ...


def serve_metrics(stack: ExitStack, address: str, run: ObservedRun) -> int:
    """Serve metrics until the stack is closed; return the port.

    Raises:
        MetricsAddressError: The address is malformed or in use.
    """
    server = open_metrics_server(address, lambda: render_metrics(run), lambda: run.is_ready)
    stack.callback(server.close)
    _log.info("metrics: http://%s:%d/metrics", server.host, server.port)
    return server.port


def render_metrics(run: ObservedRun) -> str:
    """Return the figures of a run in Prometheus' text format."""
    statuses, (counts, machines) = run.status(), run.vm_status()
    metrics, total = Metrics(), Counters()
    for status in statuses:
        total.add(status.counters)
    _add_tasks(metrics, task_figures(run.task_names, statuses))
    _add_unread(metrics, run.host_status())
    for name, value in msgspec.structs.asdict(total).items():
        if name in {"task_runs", "task_failures"}:
            continue  # the sums of the metrics by task
        text = f"Cumulative for the data directory: {name}."
        metrics.counter(f"walle_{name}_total", text).set(value)
    show_lags(metrics, run.sink_lags)
    show_services(metrics, run.service_counts)
    for name, text in _GAUGES.items():
        gauge = metrics.gauge(f"walle_{name}", text, ["partition"])
        for status in statuses:
            gauge.set(getattr(status, name), partition=str(status.number))
    for name, value in msgspec.structs.asdict(counts).items():
        metrics.counter(f"walle_vm_{name}_total", f"Of this process: {name}.").set(value)
    labels = ["task", "vm"]
    running = metrics.gauge("walle_vm_running", "1 while the VM has a run.", labels)
    calls = metrics.gauge("walle_vm_calls", "Batches that a VM has run.", labels)
    runs = metrics.gauge("walle_vm_runs", "Runs in those batches.", labels)
    for machine in machines:
        vm = {"task": machine.task, "vm": str(machine.serial)}
        running.set(machine.is_running, **vm)
        calls.set(machine.calls, **vm)
        runs.set(machine.runs, **vm)
    below = [sum(s.latencies.count_below(bound) for s in statuses) for bound in _BUCKETS_MS]
    metrics.histogram(
        "walle_exit_to_commit_ms",
        "From the delivery of a page exit, or of the events that released it, to its commit.",
        _BUCKETS_MS,
        [*below, sum(status.latencies.count for status in statuses)],
        sum(status.latencies.sum_ms for status in statuses),
    )
    return metrics.render()


def _add_tasks(metrics: Metrics, tasks: Sequence[TaskFigures]) -> None:
    for name, text in _TASK_COUNTERS.items():
        counter = metrics.counter(f"walle_task_{name}_total", text, ["task"])
        for task in tasks:
            counter.set(getattr(task, name), task=task.task)


def _add_unread(metrics: Metrics, hosts: Sequence[HostStatus]) -> None:
    for name, text in _UNREAD.items():
        gauge = metrics.gauge(f"walle_{name}", text, ["host"])
        for host in hosts:
            if (unread := getattr(host, name)) >= 0:
                gauge.set(unread, host=str(host.index))
