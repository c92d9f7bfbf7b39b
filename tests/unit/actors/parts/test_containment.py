"""How long a partition is in doubt after an unclean end."""

import logging
from types import SimpleNamespace

import pytest

from walle_stream.actors.parts.containment import Containment
from walle_stream.store.in_hand import InHand
from walle_stream.wire.rows import Counters, PartitionHead


@pytest.fixture
def left(tmp_path):
    """What a process left that died with partition 1 in hand."""
    InHand.open(tmp_path / "f", 2).mark(1)
    return InHand.open(tmp_path / "f", 2)


def head(calls=0, replies=0, *, is_ended=False):
    return PartitionHead(counters=Counters(calls=calls, replies=replies), is_ended=is_ended)


def begun(left, calls=0, replies=0):
    doubt = Containment(left, 1, 10)
    doubt.restart(SimpleNamespace(head=head(calls, replies)))
    return doubt


def test_only_what_was_in_hand_is_in_doubt_and_it_is_said_once(left, caplog):
    with caplog.at_level(logging.WARNING):
        assert not Containment(left, 0, 10).is_doubtful
        assert Containment(left, 1, 10).is_doubtful
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the last process ended while partition 1 ran scripts: its next 10 ")


def test_it_ends_with_as_many_events_as_a_batch_can_have(left):
    doubt = begun(left)
    for events, is_doubtful in ((4, True), (0, True), (5, True), (1, False)):
        doubt.mark()
        doubt.committed(SimpleNamespace(events=events, head=head()))
        assert (doubt.is_doubtful, left.is_doubtful(1)) == (is_doubtful, is_doubtful)


def test_it_ends_with_the_source(left):
    doubt = begun(left)
    doubt.committed(SimpleNamespace(events=1, head=head(is_ended=True)))
    assert not doubt.is_doubtful


def test_replies_that_were_on_their_way_are_waited_for(left):
    # three were asked for and one had come: the batch in hand may have been of the others
    doubt = begun(left, 3, 1)
    doubt.committed(SimpleNamespace(events=10, head=head(5, 2)))
    doubt.committed(SimpleNamespace(events=10, head=head(5, 2, is_ended=True)))
    assert doubt.is_doubtful
    doubt.restart(
        SimpleNamespace(head=head(5, 2))
    )  # opened again after a failure: what it waits for is the same
    doubt.committed(SimpleNamespace(events=0, head=head(6, 3)))
    assert not doubt.is_doubtful


def test_a_turn_that_failed_leaves_the_doubt(left):
    doubt = begun(left)
    doubt.mark()
    doubt.close(None)
    assert doubt.is_doubtful
    assert left.is_doubtful(1)


def test_without_doubt_a_turn_is_in_hand_from_the_call_to_the_commit(tmp_path):
    def is_in_hand():
        return (tmp_path / "f").read_bytes() == b"\x01"

    doubt = Containment(InHand.open(tmp_path / "f", 1), 0, 10)
    doubt.mark()
    assert is_in_hand()
    doubt.committed(SimpleNamespace(events=3, head=head()))
    assert not is_in_hand()
    doubt.mark()
    doubt.close(None)
    assert not is_in_hand()
