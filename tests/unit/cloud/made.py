"""Stretches of records for the tests of the cloud side."""

from contextlib import contextmanager

from walle_stream.cloud.merging import Stretch
from walle_stream.cloud.own_table import OwnTable
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body

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


def frame(*records, epoch=1, incarnation=INCARNATION, partition=0, number=1):
    body = encode_body([record(*each, feature=b'{"n":%d}' % each[1]) for each in records], "zstd")
    return encode_uplink(UplinkEnvelope(partition, epoch, incarnation, number, body))


@contextmanager
def own_table(path, *sinks):
    """The table of a partition whose database is at the path."""
    with PartitionStore.open(path) as store:
        table = OwnTable(store)
        table.serve_sinks(sinks, "lane")
        yield table
        table.close()
