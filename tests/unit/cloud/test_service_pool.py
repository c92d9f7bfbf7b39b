from queue import SimpleQueue
from threading import Event

import pytest

from walle_stream.cloud.service_pool import HANGING, Served, ServiceCall, ServicePool

WAIT_S = 30
CALL = ServiceCall("d", "t", "1", {"q": 1}, "k")


class Asked:
    """A pool, and what came of its questions."""

    def __init__(self, ask, **more):
        self.pool = ServicePool("s", Served(ask, **more))
        self.came = SimpleQueue()

    def __call__(self, count=1):
        for number in range(count):
            self.pool.ask(CALL, lambda answer, number=number: self.came.put((number, answer)))
        return [self.next() for _ in range(count)]

    def next(self):
        while self.came.empty():
            self.pool.step()
            Event().wait(0.001)
        return self.came.get(timeout=WAIT_S)


def raiser(error):
    def ask(_call):
        raise error

    return ask


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda _call: "x" * 10_000_000, "ValueError: 10000002 bytes, at most 1048576"),
        (lambda _call: float("nan"), "ValueError: "),
        (lambda _call: object(), "TypeError: "),
        (raiser(KeyError("d")), "KeyError: 'd'"),
        (raiser(SystemExit(3)), "SystemExit: 3"),
        (raiser(ConnectionError("away")), "ConnectionError: away"),
        (raiser(ValueError("no file \udcff")), r"ValueError: no file \udcff"),
    ],
)
def test_what_is_no_answer_is_one_error(ask, error):
    asked = Asked(ask)
    [(_, answer)] = asked()
    assert answer.value == b"null"
    assert answer.error.startswith(error)
    assert (asked.pool.answered, asked.pool.failed, asked.pool.timed_out) == (0, 1, 0)
    asked.pool.close()


def test_lost_connections_are_tried_again_and_mistakes_are_not():
    errors = [ConnectionError("a"), TimeoutError("b")]
    seen = []

    def ask(call):
        seen.append(call.key)
        if errors:
            raise errors.pop(0)
        return 1

    asked = Asked(ask, attempts=3, backoff_ms=1)
    [(_, answer)] = asked()
    assert (answer.value, seen, asked.pool.answered) == (b"1", ["k"] * 3, 1)
    wrong = Asked(raiser(ValueError("no")), attempts=3, backoff_ms=1)
    [(_, answer)] = wrong()
    assert (answer.error, wrong.pool.failed) == ("ValueError: no", 1)
    asked.pool.close()
    wrong.pool.close()


def test_a_late_answer_is_dropped_and_its_thread_works_on():
    gate, begun = Event(), Event()

    def ask(_call):
        if not begun.is_set():
            begun.set()
            gate.wait(WAIT_S)
        return 1

    asked = Asked(ask, timeout_ms=20, concurrency=1)
    [(_, late)] = asked()
    assert late.error == "TimeoutError: no answer within 0.02 s"
    [(_, other)] = asked()  # in another thread
    assert other.value == b"1"
    gate.set()
    assert [answer.value for _, answer in asked(3)] == [b"1"] * 3
    assert asked.came.empty()
    assert (asked.pool.answered, asked.pool.timed_out) == (4, 1)
    asked.pool.close()


def test_where_all_threads_hang_an_error_comes_at_once_until_one_is_back():
    gate, calls = Event(), []

    def ask(_call):
        calls.append(1)
        gate.wait(WAIT_S)
        return 1

    asked = Asked(ask, timeout_ms=20, concurrency=1)
    found = asked(HANGING + 3)
    assert len(calls) == HANGING
    errors = [answer.error for _, answer in found]
    assert sum("no answer within" in each for each in errors) == HANGING
    assert sum(each.endswith("all 4 threads of the service hang") for each in errors) == 3
    gate.set()
    answers = []
    while not answers or answers[-1].error:  # until one of them is back
        answers += [answer for _, answer in asked()]
    assert answers[-1].value == b"1"
    asked.pool.close()


def test_a_question_that_waited_for_an_answer_is_not_told_of_threads():
    gate = Event()

    def ask(_call):
        gate.wait(WAIT_S)

    asked = Asked(ask, timeout_ms=20, concurrency=1, attempts=HANGING + 1, backoff_ms=1)
    [(_, answer)] = asked()
    gate.set()
    assert answer.error == "TimeoutError: no answer within 0.02 s"
    asked.pool.close()
