"""``walle status``: how a run goes, or how the last one went."""

import argparse
import shlex
from collections.abc import Sequence

import msgspec

from walle_stream.actors.runs import RETURNED
from walle_stream.app.figures.status import HostStatus, RunStatus, read_status
from walle_stream.app.figures.task_figures import TaskFigures


def status(options: argparse.Namespace) -> int:
    """Print hosts, what they have yet to read, tasks, partitions and restarts."""
    found = read_status(options.data_dir)
    if options.json:
        print(msgspec.json.encode(found).decode())
        return 0
    print(_headline(found))
    for host in found.hosts:
        place = _process(host.pid)
        # of a killed run the databases say more than it could
        unread = "" if found.phase == "killed" else _unread(host)
        print(f"host {host.index}: {host.step}, {place}, {host.restarts} restarts{unread}")
    if found.cloud_restarts or found.cloud_pid:
        print(f"cloud side: {_process(found.cloud_pid)}, {found.cloud_restarts} restarts")
    _print_tasks(found.tasks)
    print("partition  host      events    features   commits   behind  outbox")
    for each in found.partitions:
        owner = "–" if each.host < 0 else str(each.host)
        behind = "ended" if each.is_ended else f"{each.behind_ms / 1000.0:,.1f} s"
        print(
            f"{each.number:>9}  {owner:>4} {each.events:>11,} {each.features:>11,} "
            f"{each.commits:>9,} {behind:>8} {each.outbox_bytes:>7,}"
        )
    letters = sum(each.dead_letters for each in found.partitions)
    if letters:
        where = shlex.quote(str(options.data_dir))
        print(f"{letters:,} dead letters: walle dead-letters list --data-dir {where}")
    dropped = sum(each.dropped_features for each in found.partitions)
    if dropped:
        print(f"{dropped:,} features were dropped unsent: see onFull and maxAge of spec.tunnel")
    losses = sum(each.losses for each in found.partitions)
    resent = sum(each.resent_features for each in found.partitions)
    asked = sum(each.resent_calls for each in found.partitions)
    if losses or resent or asked:
        print(
            f"the cloud side had forgotten what was acknowledged: {resent:,} features and "
            f"{asked:,} calls were sent again, {losses:,} features and reports are lost"
        )
    if found.cloud_losses:
        print(
            f"lost in the cloud: {found.cloud_losses:,} features and frames are missing or differ"
        )
    return 0


def _print_tasks(tasks: Sequence[TaskFigures]) -> None:
    width = max((4, *(len(each.task) for each in tasks)))
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
    told = []
    if host.unread >= 0:
        told.append(f"{host.unread:.1%} of the source")
    if host.unread_rows >= 0:
        told.append(f"{host.unread_rows:,} rows")
    if host.unread_bytes >= 0:
        told.append(f"{host.unread_bytes:,} bytes")
    if host.unread_ms >= 0:
        told.append(f"{host.unread_ms / 1000.0:,.1f} s")
    waiting = ""
    if host.in_hand_events:
        waiting = f", {host.in_hand_events:,} events wait for their commit"
    return (f", unread: {', '.join(told)}" if told else ", what is unread is not known") + waiting


def _process(pid: int) -> str:
    return f"process {pid}" if pid else "no process"


def _headline(found: RunStatus) -> str:
    runtime = f" ({found.runtime})" if found.runtime else ""
    by = f", stopped by {found.stopped_by}" if found.stopped_by else ""
    process = f", process {found.pid}" if found.pid else ""
    return f"pipeline {found.pipeline}{runtime}: {found.phase}{by}{process}"
