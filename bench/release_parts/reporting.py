"""Reports of devices: what one costs with many devices known, and how many a core takes."""

import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from walle_deploy.model.receipts import Receipt, ReceiptKeys
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.store.opening import open_store
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_stream.clock import wall_ms
from walle_stream.ports import ReportFrame
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

_TASK: Final = "shop/ipv"
_FILLED: Final = 5_000
_SENDERS: Final = 32
_CLASSES: Final = {"KeyError": 1}
_CPU: Final = slice(11, 13)  # utime and stime of /proc/PID/stat, behind the name


def measure_reports(store: str, devices: int, singles: int, many: int, seed: int) -> dict[str, Any]:
    """Return what reports cost: each of one device, with a receipt of a release's group.

    Args:
        store: ``sqlite`` or ``postgresql``, whose server's CPU counts too.
        devices: That are known before.
        singles: Reports that are stored one by one.
        many: Reports that come at once, from 32 senders.
        seed: Of the devices that report.
    """
    choose, keys = random.Random(seed), ReceiptKeys.create()
    with _address(store) as address, closing(open_store(address)) as opened:
        with opened.writing() as transaction:
            transaction.put_version(_TASK, "v2", VersionFiles(()))
        monitor = Monitor(opened, lambda token: keys.read(token, wall_ms()), needs_receipts=True)
        began = time.perf_counter()
        for number, first in enumerate(range(0, devices, _FILLED)):
            names = range(first, min(first + _FILLED, devices))
            monitor.take([_frame(keys, names, number, "fill")])
        filled_s = time.perf_counter() - began
        known = range(max(devices, 1))
        one = [_frame(keys, [choose.choice(known)], number, "one") for number in range(singles)]
        began, cpu = time.perf_counter(), _cpu_s()
        for frame in one:
            monitor.take([frame])
        single_s, single_cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        parts = [
            [_frame(keys, [choose.choice(known)], number, f"{sender}") for number in range(many)]
            for sender in range(_SENDERS)
        ]

        def send(frames: Sequence[ReportFrame]) -> None:
            for frame in frames:
                monitor.take([frame])

        began, cpu = time.perf_counter(), _cpu_s()
        with ThreadPoolExecutor(_SENDERS) as pool:
            list(pool.map(send, parts))
        many_s, many_cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        counted = monitor.counts.reports
    if counted != len(range(0, devices, _FILLED)) + singles + _SENDERS * many:
        raise AssertionError(f"{counted} reports were counted")
    return {
        "store": store,
        "devices": devices,
        "fill_us": round(filled_s / max(devices, 1) * 1e6, 1),
        "one_ms": round(single_s / singles * 1e3, 3),
        "one_cpu_ms": round(single_cpu_s / singles * 1e3, 3),
        "per_s": round(_SENDERS * many / many_s, 1),
        "per_core_s": round(_SENDERS * many / many_cpu_s, 1),
    }


@contextmanager
def _address(store: str) -> Iterator[str]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
            yield str(Path(folder) / "releases.db")
        return
    programs = find_postgres()
    if programs is None:
        raise SystemExit("no PostgreSQL (initdb, postgres) on this machine")
    with TemporaryPostgres(programs) as server:
        yield server.url


def _frame(keys: ReceiptKeys, devices: Sequence[int], number: int, sender: str) -> ReportFrame:
    now_ms = wall_ms()
    made = []
    for each in devices:
        name = f"device-{each}"
        token = keys.issue(Receipt(name, _TASK, "v2", "r1", "new", now_ms))
        made.append(DeviceRuns(name, 3, _CLASSES if each % 100 == 0 else {}, receipt=token))
    times = {bucket_of(700.0 + devices[0] % 5_000): 3 * len(devices)}
    report = TaskReport(_TASK, "v2", now_ms, now_ms, made, times, release="r1", group="new")
    [body] = encode_reports([report], "zstd")
    return ReportFrame(sender.encode().hex().rjust(16, "0"), 0, number, body)


def _cpu_s() -> float:
    """CPU of this process and all that it started."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[_CPU])) / os.sysconf("SC_CLK_TCK")
    found, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        found += spent.get(pid, 0.0)
        left += parents.get(pid, [])
    return found
