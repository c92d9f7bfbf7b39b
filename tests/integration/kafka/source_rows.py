"""Events as records, and reading a source, for the tests of the Kafka source."""

import threading
import time

from walle_connectors.kafka import CONNECTOR

DEADLINE_S = 60


def row(device, number, **fields):
    """Return key and value of an event."""
    value = {
        "id": "click",
        "kind": "click",
        "page_id": "p",
        "page_instance": "",
        "event_time_ms": 1_000 + number,
        "uid": str(number),
        **fields,
    }
    return device, value


def source(address, topic, **keys):
    """Return a source that ends where the topic does."""
    given = {"brokers": address, "topic": topic, "stopAtEnd": True, **keys}
    return CONNECTOR.open(CONNECTOR.model.model_validate(given))


def read(made, offsets=None, partitions=4, limit=None, batch_events=100):
    """Read a bounded source out."""
    reader = made.open(offsets or {}, partitions, batch_events, limit)
    try:
        return read_on(reader)
    finally:
        reader.close()


def read_on(reader, enough=lambda _: False):
    """Read until the reader is done, or there is enough."""
    batches, deadline = [], time.monotonic() + DEADLINE_S
    while not reader.is_done and not enough(batches):
        batches += reader.read()
        assert time.monotonic() < deadline, "the source does not come to an end"
    return batches


def uids(batches):
    return [int(event.uid) for batch in batches for event in batch.events]


def letters(batches):
    return [letter for batch in batches for letter in batch.dead_letters]


def offsets_of(batches):
    return {batch.partition: batch.offset for batch in batches}


class Ledger:
    """Commits of all hosts of a group, and the owners of partitions."""

    def __init__(self):
        self.lock = threading.Lock()
        self.offsets = {}
        self.owners = {}
        self.uids = {}
        self.ends = []
        self.story = []


class Host:
    """A placement that commits what it took when it gives a partition back."""

    incarnation = "here"
    may_begin_anew = True

    def __init__(self, name, ledger, made, batch_events=20):
        self.name, self.ledger = name, ledger
        self.waiting = {}
        self.threads = set()
        self.reader = made.join(self, batch_events)

    def assign(self, partitions, generation):
        self._note("assign", partitions, generation)
        with self.ledger.lock:
            for number in partitions:
                taken = self.ledger.owners.get(number)
                assert taken is None, f"{number} of {taken} was given to {self.name}"
                self.ledger.owners[number] = self.name
                self.waiting[number] = []
            return {n: self.ledger.offsets[n] for n in partitions if n in self.ledger.offsets}

    def revoke(self, partitions, deadline_ms):
        assert deadline_ms > time.monotonic() * 1000
        self._note("revoke", partitions)
        for number in partitions:
            self.commit(number)
        self._forget(partitions)

    def settle(self):
        return True

    def lose(self, partitions):
        self._note("lose", partitions)
        self._forget(partitions)

    def turn(self, commits=True):
        """Read once; returns how many events came."""
        batches = self.reader.read()
        for batch in batches:
            self.waiting[batch.partition].append(batch)  # only between assign and revoke
        if commits:
            for number in list(self.waiting):
                self.commit(number)
        return sum(len(batch.events) for batch in batches)

    def commit(self, number):
        taken, self.waiting[number] = self.waiting[number], []
        with self.ledger.lock:
            for batch in taken:
                self.ledger.uids.setdefault(number, []).extend(uids([batch]))
                self.ledger.offsets[number] = batch.offset
                if batch.is_end:
                    self.ledger.ends.append(number)

    @property
    def numbers(self):
        return sorted(self.waiting)

    def _forget(self, partitions):
        with self.ledger.lock:
            for number in partitions:
                del self.waiting[number]
                assert self.ledger.owners.pop(number) == self.name

    def _note(self, what, partitions, generation=0):
        self.threads.add(threading.current_thread())
        with self.ledger.lock:
            self.ledger.story.append((self.name, what, sorted(partitions), generation))
