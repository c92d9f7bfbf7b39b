"""A device that goes on in another partition: what it reads, and what it takes along."""

import pytest

from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.app.moving import MovedDownlink, move_device
from walle_stream.errors import StoreError
from walle_stream.store.datadir import DataDir
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import CloudCall, decode_calls, encode_calls

STRIDE = 1 << 48


class Log:
    """Partitions of messages; each has arrived when it was asked for that often."""

    log_id = "log"

    def __init__(self, messages, lateness):
        self.messages, self.left = messages, dict(lateness)

    def receive(self, partition, position, max_bytes):
        self.left[partition] -= 1
        there = self.messages[partition] if self.left[partition] < 0 else []
        return [(n, data) for n, data in enumerate(there, 1) if n > position][:max_bytes]

    def is_behind(self, partition):
        return self.left[partition] >= 0


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("per_read", [1, 9])
def test_former_partitions_are_read_to_their_ends_first(late, per_read):
    log = Log({4: [b"a", b"b"], 1: [], 7: [b"c"]}, {4: late, 1: late, 7: late})
    downlink, position, found = MovedDownlink(log, [4, 1, 7]), 0, []
    while downlink.is_behind(7) or not found or found[-1] != b"c":
        taken = downlink.receive(7, position, per_read)
        found += [data for _, data in taken]
        position = taken[-1][0] if taken else position
    assert (found, position) == ([b"a", b"b", b"c"], 2 * STRIDE + 1)
    assert (downlink.receive(7, position, 9), downlink.is_behind(7)) == ([], False)
    # another run begins there, and asks no former one
    again = MovedDownlink(Log({7: [b"c", b"d"]}, {7: 0}), [4, 1, 7])
    assert again.receive(7, position, 9) == [(2 * STRIDE + 2, b"d")]


def open_dir(path, count, *, has_cloud=False):
    return DataDir.open(path, partition_count=count, pipeline="p", source={}, has_cloud=has_cloud)


def call(number):
    return CloudCall("d", number, "t", "1", "s", b"{}")


def test_a_directory_moves_with_its_outbox_and_asks_again(tmp_path):
    path = tmp_path / "d"
    with open_dir(path, 2) as opened:
        rows = PartitionRows(PartitionStore.open(opened.partition_path(1)))
        head = rows.head()
        head.next_frame = 5
        [body] = encode_calls([call(2)], "none")
        rows.put_outbox([(4, body)], ())
        for number in (1, 2):
            rows.put_call("", call(number))
        rows.commit(head, b"at")
        rows.close()
        incarnation = opened.meta.incarnation
        with pytest.raises(StoreError):
            move_device(path, {2: 1, 6: 5}.__getitem__, 6, "none")
    for _ in range(2):
        move_device(path, {2: 1, 6: 5}.__getitem__, 6, "none")
        with open_dir(path, 6) as opened:
            assert (opened.meta.grown_from, opened.meta.incarnation) == ((2,), incarnation)
            rows = PartitionRows(PartitionStore.open(opened.partition_path(5)))
            asked = [each.number for _, b in rows.outbox() for each in decode_calls(b)]
            assert (asked, rows.head().next_frame, rows.offset()) == ([2, 1], 6, b"at")
            rows.close()
    # a number that was a mistake leaves nothing to be read
    move_device(path, {6: 5, 4: 1}.__getitem__, 4, "none")
    with open_dir(path, 4) as opened:
        assert opened.meta.grown_from == (2,)
