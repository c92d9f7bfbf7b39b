"""``walle status``: how a run goes, or how the last one went."""

import argparse

import msgspec

from walle_stream.app.status import RunStatus, read_status


def status(options: argparse.Namespace) -> int:
    """Print hosts, partitions, lag and restarts.

    Args:
        options: Parsed arguments of the sub-command.
    """
    found = read_status(options.data_dir)
    if options.json:
        print(msgspec.json.encode(found).decode())
        return 0
    print(_headline(found))
    for host in found.hosts:
        unread = "" if host.unread < 0 else f", {host.unread:.1%} of the source unread"
        place = _process(host.pid)
        print(f"host {host.index}: {host.step}, {place}, {host.restarts} restarts{unread}")
    if found.cloud_restarts or found.cloud_pid:
        print(f"cloud side: {_process(found.cloud_pid)}, {found.cloud_restarts} restarts")
    print("partition  host      events    features   commits      lag  outbox")
    for each in found.partitions:
        owner = "–" if each.host < 0 else str(each.host)
        lag = "ended" if each.is_ended else f"{each.lag_ms / 1000.0:,.1f} s"
        print(
            f"{each.number:>9}  {owner:>4} {each.events:>11,} {each.features:>11,} "
            f"{each.commits:>9,} {lag:>8} {each.outbox_bytes:>7,}"
        )
    dropped = sum(each.dropped_features for each in found.partitions)
    if dropped:
        print(f"{dropped:,} features were dropped unsent: see onFull and maxAge of spec.tunnel")
    losses = sum(each.losses for each in found.partitions)
    resent = sum(each.resent_features for each in found.partitions)
    if losses or resent:
        print(
            f"the cloud side had forgotten what was acknowledged: {resent:,} features were sent "
            f"again, {losses:,} features, calls and reports are lost"
        )
    if found.cloud_losses:
        print(
            f"lost in the cloud: {found.cloud_losses:,} features and frames are missing or differ"
        )
    return 0


def _process(pid: int) -> str:
    return f"process {pid}" if pid else "no process"


def _headline(found: RunStatus) -> str:
    runtime = f" ({found.runtime})" if found.runtime else ""
    by = f", stopped by {found.stopped_by}" if found.stopped_by else ""
    process = f", process {found.pid}" if found.pid else ""
    return f"pipeline {found.pipeline}{runtime}: {found.phase}{by}{process}"
