import threading

import pytest

from walle_connectors.kafka.source.polling import PollThread

LONG_S = 30


@pytest.fixture
def start():
    threads = []

    def make(poll):
        threads.append(PollThread(poll, "polls"))
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
