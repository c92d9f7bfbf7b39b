from threading import Event, get_ident

import pytest

from walle_stream.actors.actor import Actor, ActorRef
from walle_stream.errors import ActorDeadError, AskTimeoutError

pytestmark = pytest.mark.actors


class Echo(Actor):
    name = "echo"

    def __init__(self):
        self.stopped = Event()
        self.thread = None

    def on_start(self):
        self.thread = get_ident()

    def on_message(self, message):
        if message == "fail":
            raise ValueError("asked to fail")
        if isinstance(message, Event):
            message.wait(60)
        return message, get_ident() == self.thread

    def on_stop(self):
        self.stopped.set()


class Stubborn(Echo):
    def on_failure(self, error):
        return isinstance(error, ValueError)


def test_ask_returns_the_answer_from_the_actors_thread():
    ref = ActorRef(Echo())
    assert ref.ask("hello", 5) == ("hello", True)
    ref.stop()
    assert ref.join(60)


def test_a_failing_message_reaches_the_asker_and_ends_the_actor():
    actor = Echo()
    ref = ActorRef(actor)
    with pytest.raises(ValueError, match="asked to fail"):
        ref.ask("fail", 5)
    assert ref.join(60)
    assert isinstance(ref.failure, ValueError)
    assert actor.stopped.is_set()


def test_ask_after_the_end_raises_actor_dead_with_the_cause():
    ref = ActorRef(Echo())
    ref.tell("fail")
    assert ref.join(60)
    with pytest.raises(ActorDeadError, match="asked to fail"):
        ref.ask("hello", 5)


def test_an_actor_may_go_on_after_a_failure():
    ref = ActorRef(Stubborn())
    with pytest.raises(ValueError, match="asked"):
        ref.ask("fail", 5)
    assert ref.ask("hello", 5)[0] == "hello"
    ref.stop()
    assert ref.join(60)


def test_an_answer_that_does_not_come_in_time_is_a_timeout():
    ref, gate = ActorRef(Echo()), Event()
    ref.tell(gate)
    with pytest.raises(AskTimeoutError):
        ref.ask("hello", 0.01)
    gate.set()
    ref.stop()
    assert ref.join(60)


def test_waiting_messages_are_handled_before_a_stop():
    ref, gate = ActorRef(Echo()), Event()
    ref.tell(gate)
    ref.tell("later")
    ref.stop()
    gate.set()
    assert ref.join(60)
    assert ref.failure is None
