"""Split of a partition's devices between it and new partitions, after its topic has grown.

A device moves with all its state, and continues in its new partition as if it had always been
there. Counters and history of a partition stay where they were made.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from walle_stream.actors.rows.message_rows import decode_waiting
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.errors import StoreError
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore
from walle_stream.store.splitting import placed, split_database
from walle_stream.stream.snapshots import DeviceSnapshot
from walle_stream.wire.calls import decode_calls, encode_calls
from walle_stream.wire.rows import PartitionHead, encode_row

_OF_ALL: Final = {keys.TASK_SET_PREFIX, keys.SENDER_PREFIX}
_REWRITTEN: Final = {keys.HEAD_KEY, keys.OFFSET_KEY}


def move_partition(source: Path, target: Path, compression: str) -> None:
    """Copy the database of a partition whose only device moves to another one; blocks.

    Open calls, whose replies may come to the old partition, are made again, after the outbox
    frames.

    Raises:
        StoreError: The source cannot be read, or the target cannot be written.
    """
    rows = PartitionRows(PartitionStore.open(source, read_only=True))
    try:
        head, calls = rows.head(), list(rows.calls())
        waiting = {call.digest for _, body in rows.outbox() for call in decode_calls(body) or ()}
    finally:
        rows.close()
    bodies = encode_calls([call for call in calls if call.digest not in waiting], compression)
    frames = dict(enumerate(bodies, head.next_frame))
    head.next_frame += len(frames)
    last_rows = {keys.outbox_key(number): body for number, body in frames.items()}
    last_rows[keys.HEAD_KEY] = encode_row(head)

    def route(key: bytes, value: bytes) -> tuple[int, ...]:
        del value
        return () if key == keys.HEAD_KEY else (0,)

    split_database(source, {0: target}, route, lambda _: last_rows)


class PartitionState:
    """State of a partition that no process has open."""

    def __init__(self, path: Path) -> None:
        """Read the state; blocks.

        Raises:
            StoreError: It cannot be read, or the last run did not end cleanly and left work to do.
        """
        self.path = path
        rows = PartitionRows(PartitionStore.open(path, read_only=True))
        try:
            self.head: PartitionHead = rows.head()
            self.offset = rows.offset()
            self.epoch = rows.epoch
            self.incarnation = rows.incarnation("")
            is_left = rows.outbox() or self.head.broadcast or any(True for _ in rows.journal())
        finally:
            rows.close()
        if is_left:
            raise StoreError(
                f"{path}: the last run was killed, or its output has not arrived: run again "
                "until a run ends by itself"
            )

    def split(self, targets: Mapping[int, Path], home: Callable[[str], int], begin: bytes) -> None:
        """Make databases for the partition and the new ones; blocks.

        The lowest of ``targets`` is the partition itself. ``home`` returns the new partition of a
        device. ``begin`` is the offset of a topic partition that was not read yet.

        Raises:
            StoreError: A device belongs to none of the targets.
        """
        own = min(targets)
        waiting = dict.fromkeys(targets, 0)
        devices: dict[int, Counter[str]] = {number: Counter() for number in targets}  # by task set
        places = placed(home, targets, self.path)

        def route(key: bytes, value: bytes) -> tuple[int, ...]:
            prefix = key[:1]
            if prefix == keys.DEVICE_PREFIX:
                device, table, _ = keys.parse_device(key)
                place = places(device)
                if table == keys.TABLE_DEVICE:
                    has_sets = bool(self.head.task_sets)
                    devices[place][DeviceSnapshot.decoded(value).task_set if has_sets else ""] += 1
                return (place,)
            if prefix == keys.DEADLINE_PREFIX:
                return (places(key[1:].decode()),)
            if prefix == keys.CALL_PREFIX:
                return (places(key[1 : key.index(b"\0", 1)].decode()),)
            if prefix == keys.MESSAGE_PREFIX:
                place = places(decode_waiting(value)[0])
                waiting[place] += 1
                return (place,)
            if key in _REWRITTEN:
                return ()
            is_single = prefix == keys.HEAD_KEY[:1]
            return tuple(targets) if is_single or prefix in _OF_ALL else (own,)

        def last_rows(number: int) -> dict[bytes, bytes]:
            head = self.head.copied()
            if number != own:
                head = PartitionHead(
                    watermark_ms=head.watermark_ms,
                    next_batch=head.next_batch,  # devices refer to batches up to this number
                    next_message=head.next_message,
                    downlink_log=head.downlink_log,
                )
            head.waiting_messages = waiting[number]
            head.counters.devices = devices[number].total()
            head.task_sets = {name: devices[number][name] for name in self.head.task_sets}
            offset = self.offset if number == own else begin
            return {keys.HEAD_KEY: encode_row(head), keys.OFFSET_KEY: offset or begin}

        split_database(self.path, targets, route, last_rows)
