"""Reports of devices: what one costs with many devices known, and how many a core takes."""

import asyncio
import os
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import batched
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from walle_deploy.model.receipts import Receipt, ReceiptKeys
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.monitor import Monitor, ReportGatherer
from walle_deploy.store.opening import open_store
from walle_deploy.store.port import CountTransaction, ReleaseStore
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_stream.clock import wall_ms
from walle_stream.ports import ReportFrame
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.reports import FRAME_DEVICES, DeviceRuns, TaskReport, encode_reports

_TASK: Final = "shop/ipv"
_FILLED: Final = 100_000
"""Devices that become known in one transaction."""
_FRESH: Final = 2_000
"""Devices that come new, to see by how much the store grows; the number at once."""
_FRESH_AT_ONCE: Final = 50
_TABLES: Final = ("walle_counted", "walle_windows", "walle_scopes", "walle_marks")
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
        clocked = _Clocked(opened)
        monitor = Monitor(clocked, lambda token: keys.read(token, wall_ms()), needs_receipts=True)
        began = time.perf_counter()
        filled = 0
        for part in batched(range(devices), _FILLED, strict=False):
            frames = batched(part, FRAME_DEVICES, strict=False)
            filled += monitor.take([_frame(keys, each, each[0], "fill") for each in frames])
        filled_s = time.perf_counter() - began
        clocked.behind_ms = 0  # so that each report is its device's first of a minute
        known = range(devices)
        one = [_frame(keys, [choose.choice(known)], number, "one") for number in range(singles)]
        monitor.take(one[:1])  # makes the rows of its partition and minute
        before = _size(address)
        began, cpu = time.perf_counter(), _cpu_s()
        for frame in one[1:]:
            monitor.take([frame])
        single_s, single_cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        again = _size(address)
        fresh = [_frame(keys, [devices + number], number, "new") for number in range(_FRESH)]
        for frames in batched(fresh, _FRESH_AT_ONCE, strict=True):
            monitor.take(frames)
        after = _size(address)
        commit_s, commit_cpu_s = _commits(opened, singles)
        parts = [
            [_frame(keys, [choose.choice(known)], number, f"{sender}") for number in range(many)]
            for sender in range(_SENDERS)
        ]

        began, cpu = time.perf_counter(), _cpu_s()
        asyncio.run(_send(monitor, parts))
        many_s, many_cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        counted = monitor.counts.reports
    if counted != filled + singles + _FRESH + _SENDERS * many:
        raise AssertionError(f"{counted} reports were counted")
    return {
        "store": store,
        "devices": devices,
        "fill_us": round(filled_s / devices * 1e6, 1),
        "one_ms": round(single_s / (singles - 1) * 1e3, 3),
        "one_cpu_ms": round(single_cpu_s / (singles - 1) * 1e3, 3),
        "commit_ms": round(commit_s / singles * 1e3, 3),
        "commit_cpu_ms": round(commit_cpu_s / singles * 1e3, 3),
        "known_rows": again.rows - before.rows,
        "known_written_bytes": round((again.written_bytes - before.written_bytes) / (singles - 1)),
        "fresh_rows": (after.rows - again.rows) / _FRESH,
        "device_bytes": round(after.size_bytes / (devices + _FRESH), 1),
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
    with TemporaryPostgres(programs, is_durable=True) as server:
        yield server.url


async def _send(monitor: Monitor, parts: Sequence[Sequence[ReportFrame]]) -> None:
    """Send as many senders: each waits for an answer before its next report."""
    gatherer = ReportGatherer(monitor)

    async def send(frames: Sequence[ReportFrame]) -> None:
        for frame in frames:
            await gatherer.receive([frame])

    await asyncio.gather(*map(send, parts))


class _Clocked:
    """A store with another clock."""

    def __init__(self, store: ReleaseStore) -> None:
        self._store = store
        self.behind_ms = 180_000

    @contextmanager
    def counting(self) -> Iterator[CountTransaction]:
        with self._store.counting() as transaction:
            now_ms = transaction.now_ms() - self.behind_ms
            transaction.now_ms = lambda: now_ms  # type: ignore[method-assign]
            yield transaction


class _Size(NamedTuple):
    rows: int
    size_bytes: int
    written_bytes: int
    """Into the database's log, since it was made."""


def _size(address: str) -> _Size:
    """Return how large the tables of reports are, and what was written for them.

    Of rows those of devices: others come with a minute or a data directory, whoever is known.
    """
    count = "SELECT count(*) FROM walle_counted"
    if address.startswith("postgresql:"):
        size = " + ".join(f"pg_total_relation_size('{each}')" for each in _TABLES)
        log = "pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
        with psycopg.connect(address) as connection:
            [rows] = connection.execute(count).fetchone() or (0,)
            found = connection.execute(f"SELECT {size}, {log}::bigint").fetchone() or (0, 0)
        return _Size(rows, *map(int, found))
    with closing(sqlite3.connect(address)) as connection:
        [rows] = connection.execute(count).fetchone()
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        [page] = connection.execute("PRAGMA page_size").fetchone()
    [written] = re.findall(r"wchar: (\d+)", Path("/proc/self/io").read_text(encoding="ascii"))
    return _Size(rows, pages * page, int(written))


def _commits(store: ReleaseStore, count: int) -> tuple[float, float]:
    """Return the time and the CPU of transactions that change one row, seconds of all."""
    began, cpu = time.perf_counter(), _cpu_s()
    for number in range(count):
        with store.counting() as transaction:
            transaction.put_marks({(1, "c" * 16, 0): number}, 0)
    return time.perf_counter() - began, _cpu_s() - cpu


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
