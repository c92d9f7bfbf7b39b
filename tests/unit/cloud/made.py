"""Stretches of records for the tests of the cloud side."""

from walle_stream.cloud.merging import Stretch
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.frame import FeatureRecord

INCARNATION = "ab" * 8


def record(device, number, task="t", feature=b'{"a":1}'):
    return FeatureRecord(device, task, "1", number, feature, b"e", 1_000 + number)


def call(device, number, service="s", question=b"{}"):
    return CloudCall(device, number, "t", "1", service, question)


def stretch(*records, epoch=1, incarnation=INCARNATION, partition=2, **more):
    return Stretch(incarnation, partition, epoch, records, **more)


def numbers(table, device, task="t"):
    """Numbers that are rows, the newest first."""
    kept = table.look_up(device)
    return [number for _, number, row in kept.rows if row.task == task]
