import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from walle_stream.cloud.http_service import HttpService
from walle_stream.cloud.service_pool import ServiceCall

CALL = ServiceCall("phone/é", "t", "1", {"q": "ä"}, "ab/phone/é/1-cd")


class Server(ThreadingHTTPServer):
    """Answers as its test says, and keeps what came."""

    daemon_threads = True

    def __init__(self):
        self.seen, self.connections = [], 0
        self.status, self.answer, self.headers, self.gate = 200, b'{"a": 1}', {}, None
        self.hangs_up = False
        self.again = self.drip = None
        super().__init__(("127.0.0.1", 0), Handler)
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, *_):
        """Say nothing of clients that have gone."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/ask?v=1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.append((self.path, dict(self.headers), body))
        if server.gate is not None:
            server.gate.wait(30)
        status, answer, hangs_up = server.status, server.answer, server.hangs_up
        if server.drip is not None:
            self.drip(b"HTTP/1.1 200 OK\r\n", *server.drip)
            return
        self.send_response(status)
        for name, value in {"Content-Length": len(answer), **server.headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.close_connection = hangs_up
        self.wfile.write(answer)
        if server.again is not None:
            server.again.wait(30)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def drip(self, first, tail, ended):
        self.close_connection = True
        try:
            self.wfile.write(first)
            for _ in range(80):
                if ended.wait(0.02):
                    return
                self.wfile.write(tail)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = Server()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def service(server):
    return HttpService(server.url, 10, None)


def test_the_question_is_posted_with_its_key(server, service):
    assert service(CALL) == {"a": 1}
    [(path, headers, body)] = server.seen
    assert (path, json.loads(body)) == ("/ask?v=1", {"q": "ä"})
    assert headers["Idempotency-Key"] == "ab/phone/%C3%A9/1-cd"
    assert (headers["X-Walle-Device"], headers["X-Walle-Task"]) == ("phone/%C3%A9", "t")
    assert "Authorization" not in headers


def test_a_second_answer_is_not_taken_for_that_of_the_next_question(server, service):
    server.again = Event()
    server.again.set()
    server.answer = b'"first"'
    assert service(CALL) == "first"
    server.answer = b'"second"'
    assert [service(CALL) for _ in range(2)] == ["second"] * 2
    assert server.connections == 3


def test_a_token_is_asked_for_before_each_question(server):
    tokens = iter(["one", "two"])
    service = HttpService(server.url, 10, lambda: next(tokens))
    service(CALL)
    service(CALL)
    assert [headers["Authorization"] for _, headers, _ in server.seen] == [
        "Bearer one",
        "Bearer two",
    ]


@pytest.mark.parametrize(
    ("status", "answer", "headers", "error", "words"),
    [
        (503, b"", {}, ConnectionError, "the server answered 503 Service Unavailable"),
        (429, b"", {}, ConnectionError, "answered 429"),
        (404, b"{}", {}, ValueError, "answered 404 Not Found"),
        (302, b"", {"Location": "http://127.0.0.1:1/"}, ValueError, "answered 302"),
        (200, b"NaN", {}, ValueError, r"127\.0\.0\.1 is no JSON: NaN is not"),
        (200, b"{", {}, ValueError, "is no JSON: Expecting"),
        (200, b"\xff", {}, ValueError, "codec"),
        (200, b"1" * 2_000_000, {}, ValueError, "more than 1048576 bytes"),
        (200, b"1", {"Content-Length": 9, "Connection": "close"}, ConnectionError, "cut short"),
    ],
)
def test_what_is_no_answer_says_why(server, service, status, answer, headers, error, words):
    server.status, server.answer, server.headers = status, answer, headers
    server.hangs_up = "Connection" in headers
    with pytest.raises(error, match=words):
        service(CALL)
    server.status, server.answer, server.headers, server.hangs_up = 200, b"1", {}, False
    assert service(CALL) == 1


def test_nobody_there_and_no_answer_in_time_are_told_apart(server):
    server.gate = Event()
    service = HttpService(server.url, 0.05, None)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        service(CALL)
    server.gate.set()
    nobody = HttpService("http://127.0.0.1:1/", 5, None)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1: "):
        nobody(CALL)


@pytest.mark.parametrize("tail", [b"X: y\r\n", b"\r\n1"], ids=["headers", "body"])
def test_an_answer_that_drips_ends_in_time_as_a_whole(server, tail):
    ended = Event()
    server.drip = tail, ended
    service, began_s = HttpService(server.url, 0.3, None), time.monotonic()
    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.3 s"):
            service(CALL)
    finally:
        ended.set()
    assert time.monotonic() - began_s < 1.0
