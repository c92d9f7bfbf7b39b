"""``walle status``: the state of the current run, or of the last one."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from walle_stream.actors.runs import RETURNED
from walle_stream.app.figures.status import HostStatus, RunStatus, read_status
from walle_stream.app.figures.task_figures import TaskFigures
from walle_stream.cloud.calls import ServiceCounts


def status(options: argparse.Namespace) -> int:
    """Print hosts with their unread input and restarts, tasks and partitions."""
    run = _read(options.where)
    if options.json:
        print(msgspec.json.encode(run).decode())
        return 0
    print(_headline(run))
    for host in run.hosts:
        is_killed = run.phase == "killed"
        place = f" on {host.address}" if host.address else ""
        state = "killed" if is_killed else f"{host.step}, {_process(host.pid)}{place}"
        # a killed run's figures are its last ones; the databases may have later commits
        when = " (last known)" if is_killed else ""
        warm = f", warm copies: {host.warm_partitions}" if host.warm_partitions else ""
        print(f"host {host.index}: {state}, {host.restarts} restarts{_unread(host)}{warm}{when}")
    _print_services(run.services)
    _print_tasks(run.tasks)
    print("partition  host      events    features   commits   behind  outbox")
    for partition in run.partitions:
        owner = "–" if partition.host < 0 else str(partition.host)
        behind = "ended" if partition.is_ended else f"{partition.behind_ms / 1000.0:,.1f} s"
        print(
            f"{partition.number:>9}  {owner:>4} {partition.events:>11,} {partition.features:>11,} "
            f"{partition.commits:>9,} {behind:>8} {partition.outbox_bytes:>7,}"
        )
    letters = sum(partition.dead_letters for partition in run.partitions)
    if letters:
        is_here = not options.where.startswith("ray://")
        where = shlex.quote(options.where) if is_here else "D, on each node"
        print(f"{letters:,} dead letters: walle dead-letters list --data-dir {where}")
    dropped = sum(partition.dropped_features for partition in run.partitions)
    if dropped:
        print(f"{dropped:,} features were dropped unsent: see onFull and maxAge of spec.tunnel")
    waiting = sum(partition.waiting_messages for partition in run.partitions)
    if waiting:
        print(f"{waiting:,} messages wait for devices that were never seen")
    return 0


def scale(options: argparse.Namespace) -> int:
    """Change the number of hosts of a run over a cluster, or stop it."""
    from walle_stream.app.cluster.visiting import scale as scale_run  # noqa: PLC0415 - brings Ray

    hosts = scale_run(options.pipeline, options.hosts)
    print(f"pipeline {options.pipeline}: {hosts} hosts" if hosts else "stopped")
    return 0


def _read(where: str) -> RunStatus:
    if where.startswith("ray://"):
        from walle_stream.app.cluster.visiting import told_by_cluster  # noqa: PLC0415 - brings Ray

        return told_by_cluster(where)
    return read_status(Path(where))


def _print_services(services: ServiceCounts) -> None:
    for service, states in services.items():
        told = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in states.items())
        print(f"calls of {service} since the cloud side's process started: {told}")


def _print_tasks(tasks: Sequence[TaskFigures]) -> None:
    width = max((4, *(len(task.task) for task in tasks)))
    print(f"{'task':<{width}}        runs      failed    features")
    for task in tasks:
        figures = f"{task.runs:>11,} {task.failures:>11,} {task.features:>11,}"
        print(f"{task.task:<{width}} {figures}")
    for task in tasks:
        if task.first_failure:
            print(f"first failure of {task.task}: {task.first_failure}")
        if task.returned:
            print(f"task {task.task} {RETURNED} ({task.returned:,} runs)")


def _unread(host: HostStatus) -> str:
    lines = []
    if host.unread >= 0:
        lines.append(f"{host.unread:.1%} of the source")
    if host.unread_rows >= 0:
        lines.append(f"{host.unread_rows:,} rows")
    if host.unread_bytes >= 0:
        lines.append(f"{host.unread_bytes:,} bytes")
    if host.unread_ms >= 0:
        lines.append(f"{host.unread_ms / 1000.0:,.1f} s")
    waiting = ""
    if host.in_hand_events:
        waiting = f", {host.in_hand_events:,} events wait for their commit"
    return (f", unread: {', '.join(lines)}" if lines else ", unread: unknown") + waiting


def _process(pid: int) -> str:
    return f"process {pid}" if pid else "no process"


def _headline(run: RunStatus) -> str:
    runtime = f" ({run.runtime})" if run.runtime else ""
    by = f", stopped by {run.stopped_by}" if run.stopped_by else ""
    process = f", process {run.pid}" if run.pid else ""
    return f"pipeline {run.pipeline}{runtime}: {run.phase}{by}{process}"
