from threading import Event, Thread

import pytest

from walle_stream.actors.mailbox import Envelope, Mailbox
from walle_stream.errors import ActorDeadError, MailboxFullError

pytestmark = pytest.mark.actors


def test_messages_come_out_in_order_of_arrival():
    box = Mailbox()
    for number in range(3):
        box.put(Envelope(number))
    assert box.messages == [0, 1, 2]
    assert [box.receive(0).message for _ in range(3)] == [0, 1, 2]
    assert box.messages == []


def test_a_full_box_refuses_after_the_timeout():
    box = Mailbox(max_bytes=10)
    box.put(Envelope("a", 8))
    with pytest.raises(MailboxFullError, match="8 of 10 bytes"):
        box.put(Envelope("b", 8), timeout_s=0)


def test_a_message_larger_than_the_bound_enters_an_empty_box():
    box = Mailbox(max_bytes=10)
    box.put(Envelope("huge", 1000), timeout_s=0)
    assert box.receive(0).message == "huge"


def test_a_waiting_sender_goes_on_when_there_is_room():
    box, sent = Mailbox(max_bytes=10), Event()
    box.put(Envelope("a", 10))

    def send():
        box.put(Envelope("b", 10))
        sent.set()

    thread = Thread(target=send)
    thread.start()
    assert not sent.is_set()
    assert box.receive(5).message == "a"
    assert box.receive(5).message == "b"
    thread.join(60)
    assert sent.is_set()


def test_a_closed_box_refuses_but_gives_what_waits():
    box = Mailbox()
    box.put(Envelope("a"))
    box.close()
    with pytest.raises(ActorDeadError):
        box.put(Envelope("b"))
    assert box.receive().message == "a"
    assert box.receive() is None


def test_closing_wakes_a_waiting_sender():
    box = Mailbox(max_bytes=1)
    box.put(Envelope("a", 1))
    failures = []

    def send():
        try:
            box.put(Envelope("b", 1))
        except ActorDeadError as error:
            failures.append(error)

    thread = Thread(target=send)
    thread.start()
    box.close()
    thread.join(60)
    assert len(failures) == 1
