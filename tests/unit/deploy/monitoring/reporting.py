"""Frames of reports as devices make them, for tests."""

from walle_stream.ports import ReportFrame
from walle_stream.wire.reports import DeviceRuns, TaskReport, bucket_of, encode_reports


def report(devices, version="v1", task="shop/ipv", latency_us=1_000, output_bytes=100):
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
