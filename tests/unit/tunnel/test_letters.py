"""Dead letters on their way: each is sent once per opening, and forgotten when acknowledged."""

import pytest

from walle_stream.clock import monotonic_ms
from walle_stream.errors import TopicError
from walle_stream.ports import DeadLetter, KeptLetter
from walle_stream.tunnel import letters
from walle_stream.tunnel.letters import LetterSession


class Sink:
    def __init__(self, acknowledges=True):
        self.sent, self.pending, self.acknowledges = [], [], acknowledges

    def send(self, kept):
        self.sent.append(kept.number)
        self.pending.append(kept.number)

    def acks(self, _partition):
        if not self.acknowledges:
            return []
        pending, self.pending = self.pending, []
        return pending


def kept(number, size=10):
    letter = DeadLetter(route="decode", reason="r", origin="o", record=b"x" * size)
    return KeptLetter(letter=letter, pipeline="p", incarnation="ab", partition=0, number=number)


def reader(numbers, size=10):
    return lambda after: (kept(number, size) for number in numbers if number > after)


def test_each_letter_is_sent_once_and_its_mark_goes_once():
    sink, numbers = Sink(), [2, 5]
    session = LetterSession(sink, 0, reader(numbers))
    session.pump(5)
    session.pump(5)
    numbers.append(6)
    session.pump(6)
    session.pump(6)
    assert sink.sent == [2, 5, 6]
    assert session.collect() == [2, 5, 6]
    assert session.collect() == []


def test_nothing_is_read_while_there_is_nothing_new():
    def refuse(_after):
        raise AssertionError

    LetterSession(Sink(), 0, refuse).pump(0)


def test_what_has_no_room_waits_in_the_database(monkeypatch):
    monkeypatch.setattr(letters, "IN_FLIGHT_MAX_BYTES", 3_000)
    sink = Sink(acknowledges=False)
    session = LetterSession(sink, 0, reader(range(1, 8), 1_000))
    session.pump(7)
    assert sink.sent == [1, 2]
    assert not session.flush(7, monotonic_ms())
    sink.acknowledges = True
    assert session.flush(7, monotonic_ms() + 60_000)
    assert sink.sent == session.collect() == [*range(1, 8)]


def test_acknowledgements_of_an_earlier_opening_are_passed_over():
    sink = Sink()
    sink.pending = [3]
    session = LetterSession(sink, 0, reader([]))
    session.pump(0)
    assert session.collect() == []


def test_a_sink_that_fails_for_good_is_told():
    sink = Sink()

    def fail(_partition):
        raise TopicError("it is gone")

    sink.acks = fail
    with pytest.raises(TopicError):
        LetterSession(sink, 0, reader([1])).pump(1)
