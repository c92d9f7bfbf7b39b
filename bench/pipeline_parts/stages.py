"""Runs a pipeline with every stage of the hot path timed; prints one JSON object.

A stage's time is CPU of the thread that runs it, without the stages that it
calls. Timing costs time itself: the sum lies above the run that nobody times.
"""

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import walle_stream.actors.device_host as hosts
import walle_stream.cloud.own_table as cloud_store
import walle_stream.vm.machine as machines
from walle_connectors.events.lines import EventsReader
from walle_connectors.events.packed import PackedReader
from walle_connectors.files.reader import FilesReader
from walle_stream.actors.device_host import DeviceHost
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts import devices, features
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.app.local import LocalRun
from walle_stream.cli.__main__ import main
from walle_stream.cloud.host_tables import HostTables
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.machine import PartitionMachine
from walle_stream.vm.pool import VmPool
from walle_stream.vm.virtual_machine import VirtualMachine
from walle_stream.wire.event_batch import EventBatch

if TYPE_CHECKING:
    from collections.abc import Callable

STAGES: Final[tuple[tuple[str, Any, str], ...]] = (
    ("read and decode", EventsReader, "read"),
    ("read and decode", PackedReader, "read"),
    ("read and decode", FilesReader, "read"),
    ("journal", EventBatch, "events"),
    ("journal", devices, "encode_batch"),
    ("sequence and trie", PartitionMachine, "take"),
    ("sequence and trie", PartitionMachine, "absent"),
    ("devices in and out", PartitionRows, "device"),
    ("devices in and out", PartitionMachine, "activate"),
    ("devices in and out", PartitionMachine, "delta"),
    ("devices in and out", PartitionRows, "put_device"),
    ("numbers, features, frame", hosts, "run_together"),
    ("VM: host's side", VmPool, "run"),
    ("VM: host's side", machines, "decode_behind_header"),
    ("VM: waiting for it", VirtualMachine, "order"),
    ("numbers, features, frame", PartitionMachine, "complete"),
    ("numbers, features, frame", features, "encode_body"),
    ("numbers, features, frame", PartitionRows, "put_features"),
    ("numbers, features, frame", PartitionRows, "put_task_states"),
    ("write batch", PartitionRows, "commit"),
    ("write batch", PartitionStore, "write_rows"),
    ("turns", PartitionHost, "take"),
    ("turns", DeviceHost, "on_message"),
    ("tunnel", HostTables, "send"),
    ("cloud merge", cloud_store, "decode_body"),
    ("cloud merge", cloud_store.OwnTable, "merge"),
)
"""(stage, where, function)."""

_spent: Counter[str] = Counter()
_local = threading.local()
_threads: dict[str, float] = {}


def watch(stage: str, owner: Any, name: str) -> None:
    """Time a function as part of a stage."""
    function: Callable[..., Any] = getattr(owner, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        outer = getattr(_local, "inner", 0)
        _local.inner = 0
        began = time.thread_time_ns()
        try:
            return function(*arguments, **named)
        finally:
            took = time.thread_time_ns() - began
            _spent[stage] += took - _local.inner
            _local.inner = outer + took

    setattr(owner, name, timed)


def cpu_by_thread() -> dict[str, float]:
    """Return CPU seconds of the living threads, by the kernel's name of each."""
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            name, _, rest = (task / "stat").read_text().rpartition(")")
            fields = rest.split()
            ticks = int(fields[11]) + int(fields[12])
            found[name.partition("(")[2]] += ticks / os.sysconf("SC_CLK_TCK")
    return dict(found)


def run() -> int:
    """Run ``walle`` with our arguments."""
    for stage in STAGES:
        watch(*stage)
    close = LocalRun._close_hosts  # noqa: SLF001 - the last moment at which all threads live

    def closing(self: LocalRun) -> Any:
        statuses = close(self)
        _threads.update(cpu_by_thread())
        return statuses

    LocalRun._close_hosts = closing  # type: ignore[method-assign] # noqa: SLF001
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = main(["run", *sys.argv[1:], "--json"])
    report = json.loads(told.getvalue().splitlines()[-1])
    events = report["events"]
    vm_s = _threads.get("walle-vm", 0.0)  # of all VMs
    rocks_s = sum(cpu for name, cpu in _threads.items() if name.startswith("rocksdb"))
    stages = {stage: spent / 1e3 / events for stage, spent in _spent.items()}
    stages |= {"VM: the script": vm_s * 1e6 / events, "RocksDB's threads": rocks_s * 1e6 / events}
    print(json.dumps({"events": events, "us_per_event": stages}))
    return code


if __name__ == "__main__":
    raise SystemExit(run())
