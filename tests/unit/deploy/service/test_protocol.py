import asyncio
from collections import Counter

import pytest
import uvicorn
from uvicorn.server import ServerState

from walle_deploy.service.checks import Answer
from walle_deploy.service.protocol import bounded_protocol
from walle_deploy.service.settings import ServiceSpec

CHECK = b"GET /v1/check HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"


class Wire(asyncio.Transport):
    """What a protocol writes, and whether it closed."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.closed = asyncio.Event()

    def write(self, data):
        self.written += data

    def close(self):
        self.closed.set()

    abort = close

    def is_closing(self):
        return self.closed.is_set()

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Worker:
    """Connections of one worker whose loop has not come to any request yet."""

    def __init__(self, check=None, **limits):
        self.answers = Counter()
        spec = ServiceSpec.model_validate({"limits": limits})
        self.made = bounded_protocol(spec, self.answers, check, frozenset({b"walle-profile"}))
        self.config = uvicorn.Config(
            app, access_log=False, log_config=None, server_header=False, date_header=False
        )
        self.config.load()
        self.state = ServerState()

    def connect(self):
        protocol, wire = self.made(self.config, self.state, {}), Wire()
        protocol.connection_made(wire)
        return protocol, wire

    def drop(self, *protocols):
        for each in protocols:
            each.connection_lost(ConnectionResetError())
            each._unset_keepalive_if_required()

    async def work(self):
        await asyncio.gather(*self.state.tasks)


def run(act, check=None, **limits):
    async def within():
        await act(Worker(check, **limits))

    asyncio.run(within())


def test_what_waits_for_too_many_others_is_refused_at_once_and_served_later():
    async def act(worker):
        (first, one), (second, two) = worker.connect(), worker.connect()
        first.data_received(CHECK)
        for request in (CHECK, POST, CHECK):
            second.data_received(request)
        assert two.written.count(b"HTTP/1.1 503 ") == 3
        assert b"retry-after: 2\r\n" in two.written
        assert one.written == b""
        await worker.work()
        second.data_received(POST)
        await worker.work()
        assert one.written.startswith(b"HTTP/1.1 204 ")
        assert two.written.count(b"HTTP/1.1 204 ") == 1
        assert worker.answers == {"shed": 3}
        assert not two.is_closing()
        worker.drop(first, second)

    run(act, pending=1)


def test_an_answer_that_is_due_is_not_overtaken_by_a_refusal():
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(CHECK + CHECK)
        protocol.data_received(CHECK)
        while wire.written.count(b"HTTP/1.1") < 3:
            await worker.work()
            await asyncio.sleep(0)
        assert wire.written.count(b"HTTP/1.1 204 ") == 3
        worker.drop(protocol)

    run(act, pending=1)


def test_a_head_that_is_too_long_is_refused_in_one_piece_and_in_many():
    async def act(worker):
        whole, one = worker.connect()
        whole.data_received(CHECK[:-2] + b"x: " + b"y" * 2_000 + b"\r\n\r\n")
        pieces, many = worker.connect()
        pieces.data_received(CHECK[:-2])
        for number in range(300):
            if not many.is_closing():
                pieces.data_received(b"x%d: y\r\n" % number)
        for wire in (one, many):
            assert wire.written.startswith(b"HTTP/1.1 431 ")
            assert wire.is_closing()
        assert worker.answers == {"bad_head": 2}
        assert not worker.state.tasks
        worker.drop(whole, pieces)

    run(act, headerBytes=1_024)


def test_a_body_beside_the_head_does_not_count_as_head():
    async def act(worker):
        protocol, wire = worker.connect()
        body = b"z" * 2_000
        protocol.data_received(b"POST /x HTTP/1.1\r\ncontent-length: 4000\r\n\r\n" + body)
        protocol.data_received(body)
        protocol.data_received(CHECK)
        await worker.work()
        assert wire.written.count(b"HTTP/1.1 204 ") == 2
        assert not worker.answers
        worker.drop(protocol)

    run(act, headerBytes=1_024)


def test_who_takes_too_long_for_a_head_is_closed():
    async def act(worker):
        silent, one = worker.connect()
        slow, two = worker.connect()
        slow.data_received(CHECK)
        await worker.work()
        assert slow._deadline is None  # answered in time: it may idle
        slow.data_received(CHECK[:10])
        await asyncio.gather(one.closed.wait(), two.closed.wait())
        assert worker.answers == {"bad_head": 2}
        worker.drop(silent, slow)

    run(act, request="100ms")


HALF = b"POST /x HTTP/1.1\r\ncontent-length: 4\r\n\r\nab"


async def reading_app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await app(scope, receive, send)


def test_who_takes_too_long_for_a_body_is_told_so_and_closed():
    async def act(worker):
        worker.config.loaded_app = reading_app
        halves = [worker.connect() for _ in range(2)]
        for protocol, _ in halves:
            protocol.data_received(HALF)
        early, wire = worker.connect()
        early.data_received(CHECK[:-2] + b"content-length: 4\r\n\r\n")
        halves[0][0].data_received(b"cd")
        await asyncio.gather(halves[1][1].closed.wait(), wire.closed.wait())
        assert halves[0][1].written.startswith(b"HTTP/1.1 204 ")
        assert not halves[0][1].is_closing()
        assert halves[1][1].written.startswith(b"HTTP/1.1 408 ")
        assert worker.answers == {"bad_body": 2}
        worker.drop(*(protocol for protocol, _ in halves), early)
        assert not early.awaited

    run(act, body="100ms")


def test_bodies_on_their_way_are_in_the_way_of_each_other_and_of_no_check():
    async def act(worker):
        worker.config.loaded_app = reading_app
        halves = [worker.connect() for _ in range(3)]
        for protocol, _ in halves:
            protocol.data_received(CHECK + HALF)  # the second runs once the first is answered
            for _ in range(5):
                await asyncio.sleep(0)
        assert [wire.written.count(b" 503 ") for _, wire in halves] == [0, 0, 1]
        assert len(worker.made.awaited) == 2
        assert halves[2][1].is_closing()
        worker.drop(halves.pop()[0])
        for _ in range(5):
            await asyncio.sleep(0)
        checking, wire = worker.connect()
        checking.data_received(CHECK)
        for _ in range(5):
            await asyncio.sleep(0)
        assert wire.written.startswith(b"HTTP/1.1 204 ")
        for protocol, _ in halves:
            protocol.data_received(b"cd")
        await worker.work()
        assert [wire.written.count(b" 204 ") for _, wire in halves] == [2, 2]
        assert not worker.made.awaited
        worker.drop(checking, *(protocol for protocol, _ in halves))

    run(act, pending=1, bodies=2)


def test_a_body_that_nobody_waits_for_gives_no_room_to_others():
    async def act(worker):
        answered = [worker.connect() for _ in range(3)]
        for protocol, _ in answered:
            protocol.data_received(HALF)  # answered before its body is there
            await worker.work()
        assert not worker.made.awaited
        (first, _), (second, wire) = worker.connect(), worker.connect()
        first.data_received(CHECK)
        second.data_received(CHECK)
        assert wire.written.startswith(b"HTTP/1.1 503 ")
        await worker.work()
        worker.drop(first, second, *(protocol for protocol, _ in answered))

    run(act, pending=1)


def test_connections_have_a_bound():
    async def act(worker):
        (first, one), (second, two) = worker.connect(), worker.connect()
        assert (one.is_closing(), two.is_closing()) == (False, True)
        assert worker.answers == {"no_room": 1}
        worker.drop(first, second)

    run(act, connections=1)


def test_what_is_no_http_is_counted_and_said_once_in_our_words(caplog):
    async def act(worker):
        for data in (
            b"no HTTP at all\r\n\r\n",
            b"\x16\x03\x01\x02",
            b"GET http://[ HTTP/1.1\r\n\r\n",
        ):
            protocol, wire = worker.connect()
            protocol.data_received(data)
            assert wire.written.startswith(b"HTTP/1.1 400 ")
            assert wire.written.endswith(b"this is not an HTTP request")
            assert wire.is_closing()
            worker.drop(protocol)
        assert worker.answers == {"bad_request": 3}

    run(act)
    (line,) = [each.getMessage() for each in caplog.records]
    assert "was refused: it is not HTTP; 1 such requests" in line


def test_a_request_for_an_upgrade_is_answered_as_any_and_not_logged(caplog):
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(CHECK[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
        await worker.work()
        assert wire.written.startswith(b"HTTP/1.1 204 ")
        assert not worker.answers
        worker.drop(protocol)

    run(act)
    assert not caplog.records


def said(headers, client):
    """Answer a check with the profile that it has."""
    assert client is None
    return Answer(200, ((b"content-length", b"1"),), headers.get(b"walle-profile", b"?"))


def test_a_check_that_waits_for_nothing_is_answered_at_once():
    async def act(worker):
        protocol, wire = worker.connect()
        for profile in (b"a", b"b"):
            protocol.data_received(CHECK[:-2] + b"Walle-Profile: " + profile + b"\r\n\r\n")
            whole = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + profile
            assert wire.written == whole
            wire.written = b""
        assert not worker.state.tasks
        assert protocol.timeout_keep_alive_task is not None
        worker.drop(protocol)

    run(act, said)


@pytest.mark.parametrize(
    "request_",
    [
        POST,
        CHECK.replace(b"GET", b"HEAD"),
        CHECK.replace(b"1.1", b"1.0"),
        CHECK.replace(b"/check", b"/check?x=1"),
        CHECK[:-2] + b"content-length: 1\r\n\r\nx",
        CHECK[:-2] + b"connection: close\r\n\r\n",
        CHECK[:-2] + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        CHECK[:-2] + b"expect: 100-continue\r\n\r\n",
    ],
    ids=["post", "head", "old", "query", "body", "close", "chunked", "expect"],
)
def test_any_other_request_is_the_applications(request_):
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(request_)
        await worker.work()
        assert wire.written.startswith(b"HTTP/1.1 204 ")
        worker.drop(protocol)

    run(act, said)


@pytest.mark.parametrize("packet", [POST + CHECK, CHECK + CHECK + POST], ids=["after", "before"])
def test_what_comes_in_one_packet_is_the_applications_and_keeps_its_order(packet):
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(packet)
        assert wire.written == b""
        count = packet.count(b"HTTP/1.1")
        while wire.written.count(b"HTTP/1.1") < count:
            await worker.work()
            await asyncio.sleep(0)
        assert wire.written.count(b"HTTP/1.1 204 ") == count
        worker.drop(protocol)

    run(act, said)


def test_requests_that_wait_on_a_connection_are_bounded():
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(POST * 3_000)
        assert wire.is_closing()
        assert len(protocol.pipeline) <= 64
        assert worker.answers["shed"] == 3_000 - 65
        worker.drop(protocol)

    run(act, said)


def test_an_answer_keeps_no_clock_against_the_next_request():
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(CHECK)
        protocol.data_received(POST)
        assert protocol.timeout_keep_alive_task is None
        await worker.work()
        assert wire.written.count(b"HTTP/1.1 ") == 2
        worker.drop(protocol)

    run(act, said)


@pytest.mark.parametrize("request_", [CHECK, POST], ids=["check", "post"])
def test_who_reads_no_answer_is_cut_where_it_would_be_refused(request_):
    async def act(worker):
        (first, _), (second, two) = worker.connect(), worker.connect()
        first.data_received(POST)
        second.pause_writing()
        second.data_received(request_)
        assert (two.written, two.is_closing()) == (b"", True)
        await worker.work()
        worker.drop(first, second)

    run(act, said, pending=1)


def test_checks_of_one_turn_are_bounded():
    async def act(worker):
        protocol, wire = worker.connect()
        for _ in range(3):
            protocol.data_received(CHECK)
        protocol.data_received(CHECK[:-2] + b"content-length: 0\r\n\r\n")
        assert wire.written.count(b"HTTP/1.1 200 ") == 2
        assert wire.written.count(b"HTTP/1.1 503 ") == 2
        await asyncio.sleep(0)
        protocol.data_received(CHECK)
        assert wire.written.count(b"HTTP/1.1 200 ") == 3
        worker.drop(protocol)

    run(act, said, pending=2)


def test_a_check_that_fails_is_answered_and_the_connection_closed(caplog):
    async def act(worker):
        protocol, wire = worker.connect()
        protocol.data_received(CHECK)
        assert wire.written.startswith(b"HTTP/1.1 500 ")
        assert wire.is_closing()
        worker.drop(protocol)

    run(act, lambda *_: 1 / 0)
    assert "ZeroDivisionError" in caplog.text
