import threading

import pytest

from walle_connectors.kafka.source.polling import PollThread

LONG_S = 30


@pytest.fixture
def start():
    threads = []

    def make(poll, stand_in=lambda: None, patience_s=LONG_S):
        threads.append(PollThread(poll, "polls", stand_in, patience_s))
        return threads[-1]

    yield make
    for each in threads:
        each.stop()
        each.stop()
        assert not each._thread.is_alive()


def test_a_poll_gives_what_it_found(start):
    polls = start(lambda most: {0: [most]})
    assert polls.poll(7, LONG_S) == {0: [7]}
    assert polls.poll(8, LONG_S) == {0: [8]}


def test_one_that_goes_on_is_waited_for_and_not_asked_again(start):
    may_end, asked = threading.Event(), []

    def poll(most):
        asked.append(most)
        may_end.wait(LONG_S)
        return {}

    polls = start(poll)
    assert polls.poll(1, 0.0) is None
    assert polls.poll(2, 0.0) is None
    may_end.set()
    assert polls.poll(3, LONG_S) == {}
    assert asked == [1]


def test_nothing_is_polled_that_was_not_asked_for(start):
    asked = []
    polls = start(lambda most: asked.append(most) or {})
    polls.poll(1, LONG_S)
    polls.stop()
    assert asked == [1]


def test_what_a_poll_raises_is_the_readers(start):
    def poll(most):
        raise KeyError(most)

    polls = start(poll)
    for most in (1, 2):
        with pytest.raises(KeyError, match=str(most)):
            polls.poll(most, LONG_S)


def test_a_reader_that_does_not_come_is_stood_in_for_again_and_again(start):
    came = threading.Semaphore(0)
    polls = start(lambda most: {0: [most]}, came.release, 0.001)
    for _ in range(3):
        assert came.acquire(timeout=LONG_S)
    assert polls.poll(4, LONG_S) == {0: [4]}
    assert came.acquire(timeout=LONG_S)


def test_nobody_stands_in_for_a_reader_that_has_the_consumer(start):
    came = threading.Semaphore(0)
    polls = start(lambda _most: {}, came.release, 0.001)
    assert came.acquire(timeout=LONG_S)
    assert polls.take(LONG_S)
    while came.acquire(blocking=False):
        pass
    assert polls.poll(1, LONG_S) == {}
    assert polls.poll(1, LONG_S) == {}
    assert not came.acquire(blocking=False)
    polls.give()
    assert came.acquire(timeout=LONG_S)


def test_a_consumer_that_is_in_use_is_not_waited_for(start):
    began, may_end = threading.Event(), threading.Event()

    def stand_in():
        began.set()
        may_end.wait(LONG_S)

    polls = start(lambda _most: {}, stand_in, 0.001)
    assert began.wait(LONG_S)
    assert not polls.take(0.0)
    may_end.set()
    assert polls.take(LONG_S)
    polls.give()


def test_what_the_stand_in_raises_is_raised_once_when_the_consumer_is_taken(start):
    raised = threading.Event()

    def stand_in():
        if not raised.is_set():
            raised.set()
            raise KeyError("stand-in")

    polls = start(lambda most: {0: [most]}, stand_in, 0.001)
    assert raised.wait(LONG_S)
    with pytest.raises(KeyError, match="stand-in"):
        polls.take(LONG_S)  # behind it
    assert polls.take(LONG_S)
    assert polls.poll(2, LONG_S) == {0: [2]}
    polls.give()
