"""What arrives through a link, over real sockets; never when."""

import random
import socket
import threading

import pytest

from walle_stream.errors import LinkAddressError
from walle_stream.testing.link import DOWN, UP, Link, LinkShape

SHAPES = [
    LinkShape(),
    LinkShape(delay_ms=5, jitter_ms=5),
    LinkShape(bytes_per_s=20_000_000),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["plain", "late", "narrow"])
def test_bytes_arrive_whole_and_in_order_both_ways(link, target, connect, tools, shape):
    _, read = tools
    link.shape(shape)
    data = random.Random(1).randbytes(3_000_000)
    client = connect()
    peer = target.peer()
    up = threading.Thread(target=client.sendall, args=(data,))
    up.start()
    assert read(peer, len(data)) == data
    up.join()
    down = threading.Thread(target=peer.sendall, args=(data[::-1],))
    down.start()
    assert read(client, len(data)) == data[::-1]
    down.join()
    assert (link.lost_bytes(UP), link.lost_bytes(DOWN)) == (0, 0)


def test_an_orderly_end_is_one_way(link, target, connect, tools):
    until, read = tools
    client, peer = connect(), target.peer()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert read(peer, 8) == b"question"
    assert peer.recv(1) == b""
    peer.sendall(b"answer")
    assert read(client, 6) == b"answer"
    peer.close()
    assert client.recv(1) == b""
    until(lambda: link.connection_count == 0)
    assert link.accepted_count == 1


def test_a_reset_of_one_end_is_one_of_the_other(link, target, connect, tools):
    until, _ = tools
    client, peer = connect(), target.peer()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
    until(lambda: link.connection_count == 0)


@pytest.mark.parametrize("way", [None, UP])
def test_a_stall_loses_nothing(link, target, connect, tools, way):
    until, read = tools
    client, peer = connect(), target.peer()
    client.sendall(b"before")
    assert read(peer, 6) == b"before"
    until(lambda: link.delivered_bytes(UP) == 6)
    link.stall(way)
    client.sendall(b"meanwhile")
    if way is UP:
        # the other direction goes on, and shows that time has passed
        peer.sendall(b"alive")
        assert read(client, 5) == b"alive"
    assert link.delivered_bytes(UP) == 6
    link.heal()
    assert read(peer, 9) == b"meanwhile"
    client.sendall(b"after")
    assert read(peer, 5) == b"after"


def test_who_sends_into_a_stall_has_to_wait(link, target, connect, tools):
    _, read = tools
    client, peer = connect(), target.peer()
    link.stall(UP)
    # more than the kernel's buffers and the link's hold
    data = random.Random(2).randbytes(24 << 20)
    sent = threading.Thread(target=client.sendall, args=(data,))
    sent.start()
    peer.sendall(b"alive")
    assert read(client, 5) == b"alive"
    assert sent.is_alive()
    link.heal()
    assert read(peer, len(data)) == data
    sent.join()


def test_a_cut_loses_bytes_in_silence_and_its_end_is_a_reset(link, target, connect, tools):
    until, read = tools
    client, peer = connect(), target.peer()
    client.sendall(b"before")
    assert read(peer, 6) == b"before"
    link.cut()
    client.sendall(b"lost")
    peer.sendall(b"lost, too")
    until(lambda: (link.lost_bytes(UP), link.lost_bytes(DOWN)) == (4, 9))
    assert link.connection_count == 1
    link.heal()
    for end in (client, peer):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    again = connect()
    again.sendall(b"again")
    assert read(target.peer(1), 5) == b"again"


def test_a_connection_that_was_silent_in_a_cut_goes_on(link, target, connect, tools):
    _, read = tools
    client, peer = connect(), target.peer()
    link.cut()
    link.heal()
    client.sendall(b"after")
    assert read(peer, 5) == b"after"


@pytest.mark.parametrize("way", [UP, DOWN])
def test_a_half_open_connection_goes_on_the_other_way(link, target, connect, tools, way):
    until, read = tools
    client, peer = connect(), target.peer()
    sender, hearer = (client, peer) if way is UP else (peer, client)
    link.cut(way)
    sender.sendall(b"lost")
    until(lambda: link.lost_bytes(way) == 4)
    hearer.sendall(b"I hear nothing")
    assert read(sender, 14) == b"I hear nothing"
    # nor does the hearer learn that the sender has gone
    sender.shutdown(socket.SHUT_WR)
    hearer.sendall(b"still here")
    assert read(sender, 10) == b"still here"
    hearer.setblocking(False)  # noqa: FBT003 - the socket's own way
    with pytest.raises(BlockingIOError):
        hearer.recv(1)
    hearer.settimeout(30.0)
    link.heal()
    with pytest.raises(ConnectionResetError):
        hearer.recv(1)


@pytest.mark.parametrize("way", [None, UP, DOWN])
def test_connections_made_in_a_cut_begin_when_it_is_healed(link, target, connect, tools, way):
    until, read = tools
    link.cut(way)
    client = connect()
    client.sendall(b"early")
    until(lambda: link.accepted_count == 1)
    assert link.connection_count == 0
    assert target.peers == []
    link.heal()
    assert read(target.peer(), 5) == b"early"
    assert (link.lost_bytes(UP), link.lost_bytes(DOWN)) == (0, 0)


def test_a_cut_that_is_healed_one_way_goes_on_the_other(link, target, connect, tools):
    until, read = tools
    client, peer = connect(), target.peer()
    link.cut()
    link.heal(DOWN)
    client.sendall(b"lost")
    until(lambda: link.lost_bytes(UP) == 4)
    peer.sendall(b"heard")
    assert read(client, 5) == b"heard"


@pytest.mark.parametrize("before", ["nothing", "stall", "cut"])
def test_a_reset_ends_every_connection_at_both_ends(link, target, connect, tools, before):
    until, _ = tools
    ends = [connect(), connect()]
    ends += [target.peer(0), target.peer(1)]
    until(lambda: link.connection_count == 2)
    if before != "nothing":
        getattr(link, before)()
        ends[0].sendall(b"on its way")
    link.reset()
    for end in ends:
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    until(lambda: link.connection_count == 0)


def test_a_target_that_is_not_there_resets(tools):
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()
    with Link(nobody) as link:
        # the reset may come while this side is still connecting
        with (
            pytest.raises(ConnectionResetError),
            socket.create_connection(link.address, 30.0) as client,
        ):
            client.recv(1)
        assert link.connection_count == 0


def test_closing_resets_what_goes_through_and_may_be_repeated(target, tools):
    link = Link(target.address)
    with socket.create_connection(link.address, 30.0) as client:
        target.peer()
        link.stall()
        client.sendall(b"on its way")
        link.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    link.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(link.address, 30.0)


def test_an_address_that_is_taken_is_named(link, target):
    host, port = link.address
    with pytest.raises(LinkAddressError, match=f"{host}:{port} .*port 0 for any free port"):
        Link(target.address, link.address)
