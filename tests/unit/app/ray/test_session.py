"""Required equalities of worker and driver, and the required answer of an address."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from walle_stream.app.ray import session
from walle_stream.app.ray.session import check_worker
from walle_stream.errors import ClusterError

HERE = {
    "Python": "3.14.0",
    "Ray": "2.60.0",
    "walle_stream": "0.1.0",
    "msgspec": "0.20.0",
    "PYTHONHASHSEED": "0",
}
SETTINGS = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6)


def test_the_same_versions_are_taken():
    check_worker("host 0", HERE, dict(HERE))
    check_worker("host 0", HERE, {**HERE, "what a later version tells": "1"})


@pytest.mark.parametrize("name", HERE)
def test_another_version_is_named_with_both_sides(name):
    with pytest.raises(ClusterError) as caught:
        check_worker("host 3 (process 7)", HERE, {**HERE, name: "3.13.1"})
    message = caught.value.message
    assert all(part in message for part in ("host 3", f"{name} 3.13.1", f"{name} {HERE[name]}"))


def test_all_that_differs_is_named_in_one_line():
    there = {**HERE, "Python": "3.13.1"}
    del there["msgspec"]
    with pytest.raises(ClusterError, match=r"Python 3\.13\.1, msgspec unknown, this") as caught:
        check_worker("the cloud side", HERE, there)
    assert "\n" not in str(caught.value)


@contextmanager
def listener(answer, *, reads=True):
    """Something that takes one connection, answers it and hangs up when it is told to."""

    def serve(server):
        taken, _ = server.accept()
        with taken:
            if answer:
                taken.sendall(answer)
            while reads and taken.recv(1024):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        done = threads.submit(serve, server)
        yield f"127.0.0.1:{server.getsockname()[1]}"
        done.result()


def test_what_speaks_as_ray_does_is_taken():
    with listener(SETTINGS) as address:
        session._knock(address)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"]
)
def test_what_speaks_otherwise_is_refused(answer):
    with (
        listener(answer) as address,
        pytest.raises(ClusterError, match="does not answer as Ray does"),
    ):
        session._knock(address)


def test_what_says_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.05)
    with listener(b"") as address, pytest.raises(ClusterError, match="cannot be reached: timed"):
        session._knock(address)


def test_what_hangs_up_is_refused():
    with (
        listener(b"", reads=False) as address,
        pytest.raises(ClusterError, match=r"does not answer as Ray does|cannot be reached"),
    ):
        session._knock(address)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "ray://127.0.0.1:1", ":1", "a:b"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ClusterError, match="set HOST:PORT or auto"):
        session._knock(address)
