"""A release store with releases in progress, and an operator's browser that looks at them."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from release_parts.proving import bearer
from walle_deploy.identity.signing import SigningKey
from walle_deploy.model.receipts import Receipt
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.model import Release
from walle_deploy.store.opening import open_store
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_stream.ports import ReportFrame
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

RELEASES: Final = 20
_DEVICES: Final = 200
_GROUPS: Final = {"control": "v1", "new": "v2"}


def stock_pages(address: str) -> None:
    """Begin releases in a new store, each with a report of both of its groups.

    Args:
        address: Of the store.
    """
    with closing(open_store(address)) as store:
        commands, keys = ReleaseCommands(store, "bench"), StoredReceiptKeys(store)
        keys.refresh()
        monitor = Monitor(store, lambda token: keys.keys.read(token, keys.now_ms()))
        for number in range(RELEASES):
            task = f"shop/task-{number}"
            for version in ("v1", "v2"):
                commands.publish(task, version, VersionFiles(()))
            commands.adopt(task, "v1", "devices have it")
            given = {"metadata": {"name": f"r-{number}"}, "spec": {"task": task, "version": "v2"}}
            commands.create(
                Release.model_validate({"apiVersion": "walle/v1", "kind": "Release", **given}),
                "better than v1",
            )
            reports = [_report(keys, number, task, group) for group in _GROUPS]
            [body] = encode_reports(reports, "zstd")
            monitor.take([ReportFrame("0" * 16, 0, number, body)])


def _report(keys: StoredReceiptKeys, number: int, task: str, group: str) -> TaskReport:
    now_ms, release, version = keys.now_ms(), f"r-{number}", _GROUPS[group]
    runs = []
    for each in range(_DEVICES):
        name = f"device-{group}-{each}"
        said = Receipt(name, task, version, release, group, now_ms)  # type: ignore[arg-type]
        runs.append(
            DeviceRuns(name, 3, {"KeyError": 1} if each == 0 else {}, receipt=keys.keys.issue(said))
        )
    times = {bucket_of(900.0): 3 * _DEVICES}
    return TaskReport(task, version, now_ms, now_ms, runs, times, release=release, group=group)


def looks(key: SigningKey) -> Iterator[bytes]:
    """Yield requests of pages without end: all releases, and one after the other.

    Args:
        key: Of the operator's token.
    """
    head = f"host: localhost\r\n{bearer(key, 'viewer', 'vic')}\r\n"
    paths = itertools.chain.from_iterable(
        ("/", f"/releases/r-{number}") for number in range(RELEASES)
    )
    return itertools.cycle([f"GET {path} HTTP/1.1\r\n{head}".encode() for path in paths])
