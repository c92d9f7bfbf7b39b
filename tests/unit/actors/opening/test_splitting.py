"""Devices of a partition are shared out: with all rows of theirs, to one partition each."""

from struct import pack

import pytest

from walle_stream.actors.opening.splitting import PartitionState
from walle_stream.actors.rows.message_rows import decode_waiting
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.errors import StoreError
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.rows import Counters, PartitionHead, encode_row

DEVICES = [f"d{number}" for number in range(40)]
HEAD = PartitionHead(
    Counters(devices=40, events=9, commits=4),
    watermark_ms=70,
    next_batch=12,
    next_message=41,
    is_ended=True,
)


def home(device):
    return 1 + 3 * (int(device[1:]) % 3)


def made(path, **more):
    """A partition with a row of every kind, of every device."""
    rows = {
        keys.HEAD_KEY: encode_row(HEAD),
        keys.OFFSET_KEY: b"place",
        keys.EPOCH_KEY: pack(">Q", 5),
        keys.INCARNATION_KEY: b"ab" * 8,
        keys.task_set_key("s"): b"set",
        keys.sender_key("who"): b"sender",
        keys.dead_letter_key(1): b"letter",
    }
    for number, device in enumerate(DEVICES):
        own = keys.DeviceKeys(device)
        rows |= {
            own.row: device.encode(),
            own.state("t", "k"): b"state",
            own.feature("t", 3): b"feature",
            keys.deadline_key(device): b"12345678",
            keys.call_key(device, 1): b"call",
            keys.message_key(number): encode_row((device, 1, "who", number, b"")),
        }
    with PartitionStore.open(path) as store:
        store.write_rows(rows | more)
    return path


def all_rows(path):
    with PartitionStore.open(path, read_only=True) as store:
        return (
            dict(store.scan_range(b"\x01", b"\xff")),
            PartitionRows(store).head(),
            store.get(keys.OFFSET_KEY),
        )


def test_each_device_has_all_its_rows_in_one_partition(tmp_path):
    source = made(tmp_path / "01")
    before, _, _ = all_rows(source)
    targets = {number: tmp_path / "new" / f"{number:02d}" for number in (1, 4, 7)}
    PartitionState(source).split(targets, home, b"begin")
    found = {number: all_rows(path) for number, path in targets.items()}
    shared = {keys.task_set_key("s"), keys.sender_key("who")}
    for number, (rows, head, offset) in found.items():
        assert shared <= rows.keys()
        devices = {keys.parse_device(key)[0] for key in rows if key[:1] == keys.DEVICE_PREFIX}
        assert devices == {device for device in DEVICES if home(device) == number}
        waiting = [decode_waiting(rows[key])[0] for key in rows if key[:1] == keys.MESSAGE_PREFIX]
        assert (set(waiting), head.waiting_messages) == (devices, len(devices))
        assert head.counters.devices == len(devices)
        assert (head.watermark_ms, head.next_batch, head.next_message) == (70, 12, 41)
        is_own = number == 1
        assert (offset, head.counters.events) == ((b"place", 9) if is_own else (b"begin", 0))
        assert (keys.dead_letter_key(1) in rows) is is_own
    every = [key for rows, _, _ in found.values() for key in rows if key not in shared]
    assert sorted(every) == sorted(before.keys() - shared)  # nothing lost, nothing twice
    assert all_rows(source)[0] == before


def test_what_is_not_done_is_refused(tmp_path):
    source = made(tmp_path / "01")
    with pytest.raises(StoreError, match="device 'd1', which belongs to partition 4"):
        PartitionState(source).split({1: tmp_path / "a", 2: tmp_path / "b"}, home, b"")
    for key in (keys.outbox_key(1), keys.batch_key(1)):
        with PartitionStore.open(source) as store:
            store.write_rows({key: b"\x93\x01\x90\x00"})
        with pytest.raises(StoreError):
            PartitionState(source)
        with PartitionStore.open(source) as store:
            store.write_rows({key: None})
