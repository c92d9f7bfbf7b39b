"""Messages that lie in the data directory's inbox, on their way to its partitions."""

import pytest

from walle_stream.cloud.host_tables import HostTables
from walle_stream.cloud.inbox import Inbox
from walle_stream.store.inbox import InboxSender, inbox_files
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink, encode_downlink


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


@pytest.fixture
def tables(tmp_path):
    made, stores = HostTables(), []
    for number in range(3):
        stores.append(PartitionStore.open(tmp_path / f"{number}"))
        made.open(number, stores[-1], "ab" * 8)
    yield made
    for store in stores:
        store.close()


def opened(folder, tables):
    return Inbox(folder, tables, len, 3)


def put(folder, *envelopes):
    sender = InboxSender(folder)
    frames = [(0, n, encode_downlink(each)) for n, each in enumerate(envelopes, 1)]
    for frame in frames:
        sender.send([frame])
    assert list(sender.acks(0)) == [n for _, n, _ in frames]


def down(tables, partition):
    return [decode_downlink(data) for _, data in tables.receive(partition, 0, 1 << 20)]


def left(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_files_go_to_their_partitions_in_order_and_are_deleted(folder, tables):
    one, all_, two = (DownlinkEnvelope(d, "k", b"1", "s", n) for n, d in enumerate(("a", "", "b")))
    put(folder, one, all_, two)
    inbox = opened(folder, tables)
    inbox.step()
    inbox.step()
    assert down(tables, 0) == down(tables, 2) == [all_]
    assert down(tables, 1) == [one, all_, two]
    assert left(folder) == []


def test_what_a_death_left_is_sent_again(folder, tables):
    put(folder, DownlinkEnvelope("a", "k", b"1", "s", 1))
    [file] = inbox_files(folder)
    data = file.read_bytes()
    for _ in range(2):
        opened(folder, tables).step()
        file.write_bytes(data)
    assert len(down(tables, 1)) == 2


def test_what_is_of_another_process_partition_waits_for_it(folder, tables, tmp_path):
    put(
        folder, DownlinkEnvelope("a", "k", b"1", "s", 1), DownlinkEnvelope("xyz", "k", b"1", "s", 2)
    )
    inbox = Inbox(folder, tables, len, 4)
    inbox.step()
    assert [path.name[:3] for path in left(folder)] == ["03-"]
    with PartitionStore.open(tmp_path / "3") as store:
        tables.open(3, store, "ab" * 8)
        Inbox(folder, tables, len, 4).step()
        assert (len(down(tables, 3)), left(folder)) == (1, [])


def test_more_files_than_are_on_their_way_at_once(folder, tables):
    put(folder, *(DownlinkEnvelope("a", "k", b"1", "s", n) for n in range(20)))
    while left(folder):
        opened(folder, tables).step()
    assert [each.number for each in down(tables, 1)] == list(range(20))


def test_a_file_that_is_none_of_ours_is_put_aside(folder, tables, caplog):
    (folder / "0").write_bytes(b"x")
    (folder / ".part").write_bytes(b"x")
    (folder / "shared").mkdir()
    for name in ("01-0", "foreign"):
        (folder / "shared" / name).write_bytes(b"x")
    put(folder, DownlinkEnvelope("a", "k", b"1", "s", 1))
    opened(folder, tables).step()
    assert [each.number for each in down(tables, 1)] == [1]
    assert "has no valid messages" in caplog.text
    assert (folder / ".refused-0").exists()
    assert {path.name for path in (folder / "shared").iterdir()} == {".refused-01-0", "foreign"}


def test_there_need_not_be_an_inbox(tmp_path, tables):
    opened(tmp_path / "none", tables).step()
