"""Frames of reports as devices make them, and a store whose clock a test sets."""

from contextlib import contextmanager

from walle_deploy.model.receipts import Receipt, ReceiptKeys
from walle_deploy.model.releases import ActiveRelease, VersionFiles
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.store.rows import StoredRelease
from walle_stream.ports import ReportFrame
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

TASK, MINUTE = "shop/ipv", 60_000
KEYS = ReceiptKeys.create()


class Clocked:
    """A store with another clock."""

    def __init__(self, store, now_ms=10**12 - 10**12 % MINUTE):
        self.store, self.now = store, now_ms
        self.close = store.close

    def __getattr__(self, name):
        opened = getattr(self.store, name)

        @contextmanager
        def begin():
            with opened() as transaction:
                transaction.now_ms = lambda: self.now
                yield transaction

        return begin


def publish(store, *versions, task=TASK):
    with store.writing() as transaction:
        for version in versions:
            transaction.put_version(task, version, VersionFiles(()))


def health(store, version="v1", task=TASK):
    return HealthReader(store).health(task, version)


def begin_step(store, revision):
    """A step of release r1 begins now."""
    offer = ActiveRelease("r1", TASK, "v2", "gray", is_watched=True, step_ms=store.now)
    fields = {"release_id": "r1", "task": TASK, "version": "v2", "is_open": True, "created_ms": 1}
    with store.writing() as writing:
        writing.put_release(StoredRelease(revision=revision, state="{}", offer=offer, **fields))


def receipt(device, version="v1", release="", group="", issued_ms=10**12, task=TASK, keys=KEYS):
    return keys.issue(Receipt(device, task, version, release, group, issued_ms))


def grouped(devices, group, version="v1", release="r1", issued_ms=10**12):
    """Devices with valid receipts."""
    made = report(devices, version)
    made.release, made.group = release, group
    for each in made.devices:
        each.receipt = receipt(each.device_id, version, release, group, issued_ms)
    return made


def report(devices, version="v1", task=TASK, latency_us=1_000, output_bytes=100):
    """Devices as (id, runs, failures by class)."""
    rows = [
        DeviceRuns(
            name,
            runs,
            failures,
            failures.get("RunStopped", 0),
            failures.get("Quarantined", 0),
        )
        for name, runs, failures in devices
    ]
    runs = sum(each.runs for each in rows)
    failed = sum(sum(each.failures.values()) for each in rows)
    return TaskReport(
        task,
        version,
        0,
        1,
        rows,
        {bucket_of(latency_us): runs},
        {bucket_of(output_bytes + 1): runs - failed},
    )


def frame(number, *reports, incarnation="ab" * 8, partition=0):
    [body] = encode_reports(reports, "zstd")
    return ReportFrame(incarnation, partition, number, body)
