"""Rows of messages from the cloud: messages that wait for their device, and their senders."""

from collections.abc import Iterable, Iterator

from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.store import keys
from walle_stream.wire.rows import RowDecoder, encode_row

type Waiting = tuple[str, int, str, int, bytes]
"""(device id, watermark at arrival, sender, the sender's number, payload)."""

decode_waiting = RowDecoder(tuple[str, int, str, int, bytes], "message").decode
_decode_sender = RowDecoder(tuple[int, int], "sender").decode


def waiting_messages(rows: PartitionRows) -> Iterator[tuple[int, Waiting]]:
    """Iterate over the committed waiting messages, by number."""
    for key, value in rows.scan(keys.MESSAGE_PREFIX):
        yield keys.parse_number(key), decode_waiting(value)


def put_waiting(rows: PartitionRows, number: int, message: Waiting) -> None:
    """Write a waiting message."""
    rows.batch.put(keys.message_key(number), encode_row(message))


def take_waiting(rows: PartitionRows, numbers: Iterable[int]) -> Iterator[tuple[int, Waiting]]:
    """Iterate over the committed messages with these numbers, and delete them."""
    for number in numbers:
        key = keys.message_key(number)
        row = rows.get(key)
        if row is not None:
            rows.batch.delete(key)
            yield number, decode_waiting(row)


def senders(rows: PartitionRows) -> list[tuple[str, int]]:
    """Return (sender, number of its last message), least recent first."""
    found = [
        (*_decode_sender(value)[::-1], key[1:].decode())
        for key, value in rows.scan(keys.SENDER_PREFIX)
    ]
    return [(sender, number) for _, number, sender in sorted(found)]


def put_sender(rows: PartitionRows, sender: str, number: int, seen: int) -> None:
    """Write the number of a sender's last message; ``seen`` ascends with each message."""
    rows.batch.put(keys.sender_key(sender), encode_row((number, seen)))


def drop_sender(rows: PartitionRows, sender: str) -> None:
    """Forget a sender."""
    rows.batch.delete(keys.sender_key(sender))
