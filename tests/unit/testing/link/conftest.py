import socket
import threading
import time

import pytest

from walle_stream.testing.link import Link

WAIT_S = 30.0


class Target:
    """A server over real sockets: keeps what each connection sent; the test answers."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self.peers = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            peer.settimeout(WAIT_S)
            self.peers.append(peer)

    def peer(self, number=0):
        """The connection that came through as the number-th, once it is there."""
        until(lambda: len(self.peers) > number)
        return self.peers[number]

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for peer in self.peers:
            peer.close()


def until(holds):
    """Wait for a condition; the test fails when it never holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.001)


def read(peer, size):
    """Read exactly this number of bytes."""
    found = bytearray()
    while len(found) < size:
        piece = peer.recv(min(size - len(found), 1 << 20))
        assert piece, f"ended after {found[:100]}"
        found += piece
    return bytes(found)


@pytest.fixture
def target():
    made = Target()
    yield made
    made.close()


@pytest.fixture
def link(target):
    with Link(target.address) as made:
        yield made


@pytest.fixture
def connect(link):
    made = []

    def connect_():
        made.append(socket.create_connection(link.address, WAIT_S))
        return made[-1]

    yield connect_
    for each in made:
        each.close()


@pytest.fixture
def tools():
    """``until`` and ``read``, which test modules of this mode cannot import."""
    return until, read
