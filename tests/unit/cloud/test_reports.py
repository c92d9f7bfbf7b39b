"""Reports on their way to a service over real HTTP: there, in order, and never in the way."""

import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import INCARNATION

from walle_stream.cloud.reports import HeldReports, ReportOutlet
from walle_stream.ports import ReportFrame
from walle_stream.wire.report_batch import decode_batch


class Table:
    """Frames in memory; tells when they are gone."""

    def __init__(self, *sizes):
        self.waiting = [
            (bytes([number]), ReportFrame(INCARNATION, 2, number, bytes(size)))
            for number, size in enumerate(sizes)
        ]
        self.is_empty = threading.Event()

    def first_reports(self, max_bytes):
        held = HeldReports((), 1)
        held.waiting.extend(self.waiting)
        return held.first(max_bytes)

    def forget_reports(self, part):
        self.waiting = [each for each in self.waiting if each not in part]
        if not self.waiting:
            self.is_empty.set()


class Service:
    """Answers as told, then what ``judge`` says of the numbers."""

    def __init__(self, *answers, judge=lambda _: 200):
        self.answers, self.judge = list(answers), judge
        self.numbers, self.asked, self.tokens = [], 0, []

    def post(self, request):
        self.asked += 1
        self.tokens.append(request.headers.get("authorization"))
        body = request.rfile.read(int(request.headers["content-length"]))
        numbers = [number for _, _, number, _ in decode_batch(body)]
        status = self.answers.pop(0) if self.answers else self.judge(numbers)
        if status == "drop":
            return
        if status == 200:
            self.numbers += numbers
        request.send_response(status)
        request.send_header("location", "/elsewhere")
        request.send_header("content-length", "0")
        request.end_headers()


@contextmanager
def sending(service, table, user="", **options):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/v1/reports"
            service.post(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://{user}127.0.0.1:{server.server_address[1]}/"
    outlet = ReportOutlet(url, lambda: [table], **options)
    try:
        yield outlet
    finally:
        outlet.close()
        server.shutdown()
        thread.join()
        server.server_close()


def test_frames_go_when_the_service_has_them_whatever_it_does_first(caplog):
    service, table = Service(503, "drop", 302, 404), Table(1, 1, 1)
    with sending(service, table, user="u:secret@") as outlet:
        assert table.is_empty.wait(30)
    assert (service.numbers, service.asked) == ([0, 1, 2], 5)
    assert (outlet.sent, outlet.dropped) == (3, 0)
    assert service.tokens[0] == "Basic dTpzZWNyZXQ="
    assert "answered 503" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("status", [400, 403, 413])
def test_one_that_is_refused_takes_no_other_with_it(status):
    service = Service(judge=lambda numbers: status if 1 in numbers else 200)
    table = Table(1, 1, 1)
    with sending(service, table) as outlet:
        assert table.is_empty.wait(30)
    assert (service.numbers, outlet.sent, outlet.dropped) == ([0, 2], 2, 1)


def test_batches_are_bounded():
    sizes = []
    service = Service(judge=lambda numbers: sizes.append(len(numbers)) or 200)
    table = Table(*[200_000] * 5)
    with sending(service, table):
        assert table.is_empty.wait(30)
    assert (service.numbers, sizes) == ([0, 1, 2, 3, 4], [2, 2, 1])


def test_it_says_who_it_is_and_goes_on_with_a_new_token():
    service, given = Service(401, 429, 401), iter(["old", "old", "old", "new"])
    table = Table(1)
    with sending(service, table, token=lambda: next(given)) as outlet:
        assert table.is_empty.wait(30)
    assert service.tokens == ["Bearer old"] * 3 + ["Bearer new"]
    assert (outlet.sent, outlet.dropped) == (1, 0)
