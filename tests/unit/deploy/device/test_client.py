import http.server
import socket
import threading
from base64 import urlsafe_b64encode

import msgspec
import pytest

from walle_deploy.device import client as module
from walle_deploy.device.client import PUSH_MAX_BYTES, ReleaseClient
from walle_deploy.model.profile import PROFILE_HEADER, DeviceProfile, decode_profile
from walle_deploy.model.pushes import PUSH_TYPE, Push, PushedTask
from walle_deploy.model.receipts import Receipt, ReceiptKeys
from walle_stream.errors import (
    IdentityError,
    IntegrityError,
    ServiceBusyError,
    ServiceUnreachableError,
)

PUSH = Push((PushedTask("shop/ipv", "v2"), PushedTask("shop/old", "")), "http://x/metadata")
BODY = msgspec.json.encode(PUSH)
JSON = {"Content-Type": PUSH_TYPE}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.server.profiles.append(decode_profile(self.headers[PROFILE_HEADER]))
        self.server.tokens.append(self.headers["authorization"])
        status, headers, body = self.server.said
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads, made.profiles, made.tokens = True, [], []
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def asked(server):
    client = ReleaseClient(f"http://127.0.0.1:{server.server_port}/v1/check")

    def ask(status, headers=(), body=b""):
        server.said = status, dict(headers), body
        return client.check(DeviceProfile("d-1", app="shop", tasks={"shop/ipv": "v1"}))

    yield ask
    client.close()


def test_it_says_what_the_device_is(asked, server):
    asked(204)
    assert server.profiles[-1] == DeviceProfile("d-1", app="shop", tasks={"shop/ipv": "v1"})


def test_it_proves_who_asks_with_the_token_of_the_moment(asked, server):
    asked(204)
    assert server.tokens[-1] is None
    url, given = f"http://127.0.0.1:{server.server_port}/v1/check", iter(["one", "two"])
    client = ReleaseClient(url, token_of=lambda device: f"{device}-{next(given)}")
    for expected in ("Bearer d-1-one", "Bearer d-1-two"):
        client.check(DeviceProfile("d-1"))
        assert server.tokens[-1] == expected
    client.close()


@pytest.mark.parametrize("status", [401, 403])
def test_a_service_that_does_not_believe_it_says_why(asked, status):
    with pytest.raises(IdentityError, match=f"answered {status}: .*expired"):
        asked(status, body=b'{"error": "the token expired"}')


def test_one_that_asked_too_often_asks_again_when_it_is_told(asked):
    with pytest.raises(ServiceBusyError) as caught:
        asked(429, {"Retry-After": "7"})
    assert caught.value.after_s == 7


def test_a_push_comes_as_the_answer_or_in_a_header_of_any_answer(asked):
    assert asked(200, JSON, BODY).push == PUSH
    header = {"walle-push": urlsafe_b64encode(BODY).rstrip(b"=").decode()}
    for status in (200, 204, 404):
        assert asked(status, header, b"" if status == 204 else b"business").push == PUSH


def test_answers_without_a_push_say_that_nothing_is_new(asked):
    assert asked(204).push is None
    assert asked(200, {"Content-Type": "text/html"}, b"<html>").push is None
    assert asked(200, {"Content-Type": "application/json"}, b'{"items": [1]}').push is None


def test_the_time_of_the_service_is_told_where_it_is_one(asked):
    date = "Thu, 01 Jan 1970 00:00:02 GMT"
    assert asked(204, {"Date": date}).service_ms == 2_000
    for wrong in ("yesterday", "Thu, 99 Foo 1970 00:00:02 GMT", "Thu, 01 Jan 99999 00:00:02 GMT"):
        assert asked(204, {"Date": wrong}).service_ms is None


@pytest.mark.parametrize(
    ("after", "seconds"),
    [("2", 2), ("0", 0.1), ("1e9", 3_600), ("nan", 5), ("-inf", 0.1), ("inf", 3_600), ("x", 5)],
)
def test_a_busy_service_says_when_to_ask_again_within_bounds(asked, after, seconds):
    with pytest.raises(ServiceBusyError) as caught:
        asked(503, {"Retry-After": after})
    assert caught.value.after_s == seconds


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ([{"task": f"s/t{n}", "version": "v"} for n in range(257)], "257 tasks"),
        ([{"task": "s/t", "version": "v"}, {"task": "s/t", "version": "w"}], "twice"),
        ([{"task": "s/t@v", "version": ""}], "names a version"),
        ([{"task": "s/t@v", "version": "w"}], "names no (task|version)"),
        ([{"task": "../t", "version": "v"}], "names no (task|version)"),
        ([{"task": "s/t", "version": "a/../b"}], "names no (task|version)"),
        ([{"task": "s/" + "x" * 9_999, "version": "v"}], "s/xxx"),
        ([{"task": 7, "version": "v"}], "Expected `str`"),
        (7, "Expected `array`"),
    ],
)
def test_a_push_that_is_none_is_refused_in_one_line(asked, tasks, reason):
    with pytest.raises(IntegrityError, match=reason) as caught:
        asked(200, JSON, msgspec.json.encode({"tasks": tasks}))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", ["!", "e30", "\xff", "e" * 5_001])
def test_a_header_that_is_no_push_is_refused(asked, value):
    with pytest.raises(IntegrityError):
        asked(204, {"walle-push": value})


def test_no_more_is_read_than_a_push_may_have(asked):
    with pytest.raises(IntegrityError, match="more than"):
        asked(200, JSON, b" " * (PUSH_MAX_BYTES + 1))
    assert asked(204).push is None  # the rest is not taken for an answer


def test_an_answer_that_takes_too_long_is_left(asked, monkeypatch):
    now = iter(range(0, 10**9, 10_000))
    monkeypatch.setattr(module, "monotonic_ms", lambda: next(now))
    with pytest.raises(ServiceUnreachableError, match="takes longer than 5 s"):
        asked(200, JSON, BODY)


def test_an_error_is_told_without_the_lines_of_the_server(asked):
    with pytest.raises(ServiceUnreachableError, match=r"answered 500: a b$") as caught:
        asked(500, {}, b"a\x1b\r\n\x00b" + b" " * 999)
    assert str(caught.value).isprintable()


def test_nobody_listens():
    client = ReleaseClient("http://127.0.0.1:1/v1/check")
    with pytest.raises(ServiceUnreachableError, match="does not answer"):
        client.check(DeviceProfile("d"))
    client.close()


def test_a_service_that_is_away_is_said_in_the_systems_words():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/check"
    client = ReleaseClient(url)
    with pytest.raises(ServiceUnreachableError) as caught:
        client.check(DeviceProfile("d"))
    client.close()
    assert all(part in caught.value.message for part in (url, "Connection refused"))


def test_a_service_that_says_nothing_is_said_to_be_late():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ReleaseClient(
            f"http://127.0.0.1:{silent.getsockname()[1]}/v1/check", timeout_s=0.05
        )
        with pytest.raises(ServiceUnreachableError, match=r"not answer: no answer in time$"):
            client.check(DeviceProfile("d"))
        client.close()


KEYS = ReceiptKeys.create()


def receipts(**by_task):
    return {task.replace("_", "/"): KEYS.issue(receipt) for task, receipt in by_task.items()}


def test_receipts_come_with_a_push_or_alone(asked):
    own = Receipt("d-1", "shop/ipv", "v1", issued_ms=7)
    for push in (
        Push((), receipts=receipts(shop_ipv=own)),
        Push(
            (PushedTask("shop/ipv", "v2"), PushedTask("shop/old", "")),
            receipts=receipts(shop_ipv=Receipt("d-1", "shop/ipv", "v2", "r", "new", 7)),
        ),
    ):
        assert asked(200, JSON, msgspec.json.encode(push)).push == push


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt("d-2", "shop/ipv", "v2"),  # of another device
        Receipt("d-1", "shop/old", "v2"),  # of another task
        Receipt("d-1", "shop/ipv", "v1"),  # of the version that is about to go
    ],
)
def test_receipts_of_others_are_refused_with_the_whole_answer(asked, receipt):
    push = Push((PushedTask("shop/ipv", "v2"),), receipts=receipts(shop_ipv=receipt))
    with pytest.raises(IntegrityError, match="is not a valid push: a receipt"):
        asked(200, JSON, msgspec.json.encode(push))


@pytest.mark.parametrize("token", ["", "x", "e30", "é", "A" * 5_000])
def test_what_is_no_receipt_is_refused_with_the_whole_answer(asked, token):
    push = Push((), receipts={"shop/ipv": token})
    with pytest.raises(IntegrityError, match="is not a valid push: a receipt"):
        asked(200, JSON, msgspec.json.encode(push))
