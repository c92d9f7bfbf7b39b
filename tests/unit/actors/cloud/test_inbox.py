"""Messages that lie in the data directory's inbox, on their way into the tunnel."""

import pytest

from walle_connectors.embedded import CONNECTOR
from walle_stream.actors.cloud.inbox import Inbox
from walle_stream.store.inbox import InboxSender, inbox_files
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink, encode_downlink


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


@pytest.fixture
def tunnel(tmp_path):
    opened = CONNECTOR.open_tunnel(tmp_path / "t", 1 << 20)
    yield opened
    opened.close()


def opened(folder, tunnel):
    return Inbox(folder, tunnel.downlink_sender, len, range(3))


def put(folder, *envelopes):
    sender = InboxSender(folder)
    frames = [(0, n, encode_downlink(each)) for n, each in enumerate(envelopes, 1)]
    for frame in frames:
        sender.send([frame])
    assert list(sender.acks(0)) == [n for _, n, _ in frames]


def down(tunnel, partition):
    return [decode_downlink(data) for _, data in tunnel.downlink.receive(partition, 0, 1 << 20)]


def test_files_go_into_the_tunnel_in_order_and_are_deleted(folder, tunnel):
    one, all_, two = (DownlinkEnvelope(d, "k", b"1", "s", n) for n, d in enumerate(("a", "", "b")))
    put(folder, one, all_, two)
    other = tunnel.downlink_sender
    inbox = opened(folder, tunnel)
    inbox.step()
    tunnel.settle()
    inbox.step()
    assert down(tunnel, 0) == [all_]
    assert down(tunnel, 1) == [one, all_, two]
    assert inbox_files(folder) == []
    assert not list(other.acks(1))  # they are nobody else's


def test_what_a_death_left_is_sent_again(folder, tunnel):
    put(folder, DownlinkEnvelope("a", "k", b"1", "s", 1))
    [file] = inbox_files(folder)
    data = file.read_bytes()
    for _ in range(2):
        opened(folder, tunnel).step()
        tunnel.settle()
        file.write_bytes(data)
    assert len(down(tunnel, 1)) == 2


def test_more_files_than_are_on_their_way_at_once(folder, tunnel):
    put(folder, *(DownlinkEnvelope("a", "k", b"1", "s", n) for n in range(20)))
    inbox = opened(folder, tunnel)
    while inbox_files(folder):
        inbox.step()
        tunnel.settle()
    assert [each.number for each in down(tunnel, 1)] == list(range(20))


def test_a_file_that_is_none_of_ours_is_put_aside(folder, tunnel, caplog):
    (folder / "0").write_bytes(b"x")
    (folder / ".part").write_bytes(b"x")
    put(folder, DownlinkEnvelope("a", "k", b"1", "s", 1))
    inbox = opened(folder, tunnel)
    inbox.step()
    assert [each.number for each in down(tunnel, 1)] == [1]
    assert "holds no messages" in caplog.text
    assert (folder / ".refused-0").exists()


def test_there_need_not_be_an_inbox(tmp_path, tunnel):
    opened(tmp_path / "none", tunnel).step()
