"""Ending a producer that has records which nobody takes."""

from threading import Event, Thread, get_ident
from types import SimpleNamespace

import pytest
from kafka.errors import IllegalStateError, KafkaTimeoutError

from walle_connectors.kafka import connecting
from walle_connectors.kafka.connecting import close_producer


class Batches:
    """As the library's: two that abort them at once fall over each other."""

    def __init__(self):
        self.aborted_by = []

    def abort_incomplete_batches(self):
        self.aborted_by.append("sender" if self.sender.is_current() else "other")
        if len(self.aborted_by) > 1:
            raise IllegalStateError("Batch has already been completed")


class Sender(Thread):
    """Aborts what is left when it is told to close, unless it hangs."""

    def __init__(self, batches, *, hangs):
        super().__init__(daemon=True)
        self.batches, self.hangs, self.closing, self.end = batches, hangs, Event(), Event()
        self.failure = None

    def is_current(self):
        return self.ident == get_ident()

    def force_close(self):
        self.closing.set()

    def run(self):
        self.closing.wait(30)
        if self.hangs:
            self.end.wait(30)
            return
        try:
            self.batches.abort_incomplete_batches()
        except IllegalStateError as error:
            self.failure = error


@pytest.mark.parametrize("hangs", [False, True])
def test_what_is_left_is_failed_once(hangs, monkeypatch):
    monkeypatch.setattr(connecting, "_ABORT_S", 0.2 if hangs else 30)
    batches = Batches()
    sender = batches.sender = Sender(batches, hangs=hangs)
    sender.start()

    def close(timeout):
        if not batches.aborted_by:
            raise KafkaTimeoutError(timeout)

    close_producer(SimpleNamespace(close=close, _sender=sender, _accumulator=batches), 0)
    sender.end.set()
    sender.join(30)
    assert sender.failure is None
    assert batches.aborted_by == ["other" if hangs else "sender"]
