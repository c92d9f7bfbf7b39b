import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from walle_deploy.outbound.bounded import get_unread, limit_headers, words_of

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


@contextmanager
def answering(*answers):
    """Serve connections one behind the other, each a list of answers; give what was asked.

    The end comes with an answer, so a client cannot see it before it sends.
    """
    asked, pools = [], urllib3.PoolManager(maxsize=1, retries=False, headers={"User-Agent": "d"})
    limit_headers(pools, 5)

    def serve(listener):
        for each in answers:
            with listener.accept()[0] as sock:
                for answer in each:
                    asked.append(sock.recv(65_536))
                    sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        timeout = urllib3.Timeout(5)
        yield lambda: get_unread(pools, url, {"X": "y"}, timeout).release_conn(), asked
    thread.join()
    pools.clear()


def test_a_kept_connection_that_ends_as_it_is_used_again_costs_nothing():
    with answering([ANSWER, b""], [ANSWER]) as (get, asked):
        get()
        get()
    assert len(asked) == 3
    assert all(b"User-Agent: d\r\n" in each for each in asked)


def test_a_server_that_always_ends_connections_is_asked_once():
    with (
        answering([b""]) as (get, asked),
        pytest.raises(urllib3.exceptions.ProtocolError) as caught,
    ):
        get()
    assert len(asked) == 1
    assert words_of(caught.value) == "Remote end closed connection without response"


def test_what_ended_twice_is_an_error():
    with answering([ANSWER, b""], [b""]) as (get, asked):
        get()
        with pytest.raises(urllib3.exceptions.ProtocolError):
            get()
    assert len(asked) == 3


def test_an_error_that_was_handled_before_is_not_taken_for_the_reason():
    def read_and_get(get):
        try:
            Path("/nothing/there").read_bytes()
        except FileNotFoundError:
            get()  # as the library of the metadata does

    with (
        answering([b""]) as (get, _),
        pytest.raises(urllib3.exceptions.ProtocolError) as caught,
    ):
        read_and_get(get)
    assert words_of(caught.value) == "Remote end closed connection without response"
