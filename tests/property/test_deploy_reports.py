"""Reports over several workers of one store: each frame counts once, whatever happens to them.

The oracle counts the frames that a sender got an answer for, each once, and nothing else.
"""

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.deploy.monitoring.reporting import frame, report
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.worker_rows import SILENT_MS
from walle_stream.errors import ConflictError, StoreError

TASK, VERSIONS = "shop/ipv", ("v1", "v2")
SENDERS, WORKERS, STEPS = 3, 3, 30
START_MS = 10**12


class Rows:
    """A store in memory: before a write others may have their turn, and its answer may be lost."""

    def __init__(self, choose):
        self.rows = {}
        self.choose = choose
        self.between = None
        self.is_ill = True

    def load(self, *prefixes):
        return {key: self.rows[key] for key in self.rows if key.startswith(prefixes)}

    def read(self, keys):
        return {key: self.rows[key] for key in keys if key in self.rows}

    def save(self, rows, expected=None):
        if self.between is not None:
            self.between()
        ill = self.choose.random() if self.is_ill else 0.5
        if ill < 0.05:
            raise StoreError("away")
        if any(self.rows.get(key) != value for key, value in (expected or {}).items()):
            raise ConflictError("changed")
        self.rows |= rows
        self.rows = {key: value for key, value in self.rows.items() if value is not None}
        if ill > 0.95:
            raise StoreError("the answer was lost")


def versions_in(number):
    return [each for place, each in enumerate(VERSIONS) if number % 3 != place]


@dataclass
class Sender:
    """Frames of one partition, in order; what was not answered is sent again, to anybody."""

    name: str
    made: int = 0
    answered: int = 0


class Fleet:
    def __init__(self, choose):
        self.choose = choose
        self.now_ms = START_MS
        self.store = Rows(choose)
        self.senders = [Sender(f"{n:016x}") for n in range(SENDERS)]
        self.born = 0
        self.monitors = []
        for _ in range(WORKERS):
            self.start()
        self.busy = []
        self.store.between = self.meanwhile

    def start(self):
        self.born += 1
        # of some names there are several that live
        name = self.choose.choice(["same", f"w{self.born}"])
        self.monitors.append(Monitor(self.store, name, now_ms=lambda: self.now_ms))

    def frames(self, sender, first, last):
        return [
            frame(
                number,
                *(
                    report([(f"{sender.name}-{number}", number, {})], each)
                    for each in versions_in(number)
                ),
                incarnation=sender.name,
            )
            for number in range(first, last + 1)
        ]

    def send(self):
        sender = self.choose.choice(self.senders)
        sender.made += self.choose.randrange(3)
        # it may begin again with what was answered long ago
        first = self.choose.randint(1, sender.answered + 1)
        last = sender.made
        free = [each for each in self.monitors if each not in self.busy]
        if not free:
            return
        monitor = self.choose.choice(free)
        self.busy.append(monitor)
        try:
            monitor.take(self.frames(sender, first, last))
        except (ConflictError, StoreError):
            return
        finally:
            self.busy.remove(monitor)
        sender.answered = max(sender.answered, last)

    def meanwhile(self):
        """What happens while one worker is about to write: the same, of others."""
        if self.choose.random() < 0.3:
            self.step()

    def step(self):
        act = self.choose.choices(["send", "kill", "close", "later", "look"], [12, 2, 1, 2, 2])[0]
        if act == "send":
            self.send()
        elif act == "later":
            self.now_ms += self.choose.choice([1_000, SILENT_MS // 2, SILENT_MS + 1, 600_000])
        elif act == "look":
            self.check()
        else:
            gone = self.monitors.pop(self.choose.randrange(len(self.monitors)))
            if act == "close" and gone not in self.busy:
                gone.close()  # one that is busy goes on for a while, as one that stood still does
            self.start()

    def check(self):
        """Every answered frame is there once; of those on their way each is, or is not."""
        reader = HealthReader(self.store)
        marks = [
            max(0, int(self.store.rows.get(f"mark/{each.name}/0", 0))) for each in self.senders
        ]
        for sender, mark in zip(self.senders, marks, strict=True):
            assert sender.answered <= mark <= sender.made
        for version in VERSIONS:
            found = reader.health(TASK, version)
            counted = [n for mark in marks for n in range(1, mark + 1) if version in versions_in(n)]
            assert (found.runs, found.devices) == (sum(counted), len(counted))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_frame_counts_once_whoever_takes_it_dies_or_stands_still(seed):
    fleet = Fleet(random.Random(seed))
    for _ in range(STEPS):
        fleet.step()
    fleet.check()
    fleet.now_ms += SILENT_MS + 1
    fleet.store.is_ill, fleet.store.between = False, None
    last = Monitor(fleet.store, "last", now_ms=lambda: fleet.now_ms)
    for sender in fleet.senders:
        sender.made += 1
        last.take(fleet.frames(sender, 1, sender.made))
        sender.answered = sender.made
    fleet.check()
    assert list(fleet.store.load("worker/")) == ["worker/last"]
    assert last.health(TASK, "v1") == HealthReader(fleet.store).health(TASK, "v1")
