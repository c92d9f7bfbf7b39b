"""Reports over several monitors of one store: each frame counts once, whatever happens to them.

The oracle keeps what every counted device said, and answers each question by looking at all of it.
"""

import random
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.deploy.monitoring.reporting import (
    KEYS,
    MINUTE,
    TASK,
    Clocked,
    begin_step,
    frame,
    publish,
    receipt,
    report,
)
from walle_deploy.model.health import LEVELS, ReleaseHealthQuery
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.store.rows import END
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import ServiceUnreachableError

SENDERS, MONITORS, DEVICES, STEPS = 3, 3, 12, 25
VERSIONS = {"control": "v1", "new": "v2"}
STATEMENTS_MAX = 40


class Ill(Clocked):
    """Its transactions of reports break before some statement, or once they are kept."""

    choose = None

    @contextmanager
    def counting(self):
        left = self.choose.randrange(2 * STATEMENTS_MAX)
        with self.store.counting() as transaction:
            transaction.now_ms = lambda: self.now
            execute = transaction._execute

            def run(*statement):
                nonlocal left
                left -= 1
                if left == 0:
                    raise ServiceUnreachableError("killed")
                return execute(*statement)

            transaction._execute = run
            yield transaction
        if self.choose.random() < 0.1:
            raise ServiceUnreachableError("the answer was lost")


@dataclass
class Said:
    """What one device said in one frame that counted."""

    minute: int
    version: str
    group: str | None
    device: str
    runs: int
    failures: int
    crashes: int


@dataclass
class Sender:
    name: str
    frames: list = field(default_factory=list)
    said: list = field(default_factory=list)
    minutes: dict = field(default_factory=dict)
    answered: int = 0


class Fleet:
    def __init__(self, choose, needs_receipts):
        self.choose, self.needs_receipts = choose, needs_receipts
        plain = SqliteStore(Path(":memory:"))
        publish(plain, *VERSIONS.values())
        self.store = Ill(plain)
        self.store.choose = choose
        self.senders = [Sender(f"{n:016x}") for n in range(SENDERS)]
        self.arrived = []
        self.monitors = [self.monitor() for _ in range(MONITORS)]
        self.readers = [HealthReader(self.store) for _ in range(2)]
        self.groups = {f"d{n}": "control" for n in range(DEVICES)}
        self.steps, self.step_ms, self.begun = 0, 0, 0

    def monitor(self):
        return Monitor(
            self.store,
            lambda token: KEYS.read(token, 10**12),  # however late it comes
            needs_receipts=self.needs_receipts,
        )

    def make_frame(self, sender):
        reports, said = [], []
        for group, version in self.choose.sample(sorted(VERSIONS.items()), 2):
            for kind in self.choose.choices(["grouped", "beta", "bare", "forged", "unknown"], k=2):
                made, rows = self.make_report(kind, group, version)
                reports.append(made)
                said += rows
        sender.frames.append(frame(len(sender.frames), *reports, incarnation=sender.name))
        sender.said.append(said)

    def make_report(self, kind, group, version):
        names = sorted(name for name in self.groups if self.groups[name] == group)
        chosen = self.choose.sample(names, self.choose.randrange(len(names) + 1))
        devices = []
        for name in chosen:
            classes = {"Quarantined": 1, "E": self.choose.choice([1, 6, 20])}
            failures = self.choose.choice([{}, {}, classes, {"E": 1}])
            devices.append((name, sum(failures.values()) + self.choose.randrange(3), failures))
        made = report(devices, "v9" if kind == "unknown" else version)
        if kind in {"grouped", "beta"}:
            made.release, made.group = "r1", group if kind == "grouped" else ""
            for each in made.devices:
                each.receipt = receipt(each.device_id, version, "r1", made.group)
        elif kind == "forged":
            for each in made.devices:
                each.receipt = receipt("other", version, "r1", group)
        if kind == "unknown" or (self.needs_receipts and kind in {"bare", "forged"}):
            return made, []
        where = {"grouped": group, "beta": ""}.get(kind)
        return made, [
            Said(-1, version, where, name, runs, sum(classes.values()), "Quarantined" in classes)
            for name, runs, classes in devices
            if runs
        ]

    def send(self):
        sender = self.choose.choice(self.senders)
        first = self.choose.randint(0, sender.answered)
        monitor = self.choose.choice(self.monitors)
        for _ in range(self.choose.randrange(3)):
            self.make_frame(sender)
        before = self.mark(sender)
        try:
            monitor.take(sender.frames[first:])
        except ServiceUnreachableError:
            if self.choose.random() < 0.3:  # it died
                self.monitors[self.monitors.index(monitor)] = self.monitor()
        else:
            sender.answered = len(sender.frames)
        for number in range(before + 1, self.mark(sender) + 1):
            sender.minutes[number] = self.window()
            self.arrived.append((sender, number))
        assert all(number in sender.minutes for number in self.counting(sender))

    def counting(self, sender):
        return [number for number in range(sender.answered) if sender.said[number]]

    def mark(self, sender):
        with self.store.store.counting() as counting:
            query = "SELECT max(number) FROM walle_marks WHERE incarnation = ?"
            [last] = counting._execute(query, (sender.name,)).fetchone()
        return -1 if last is None else last

    def window(self):
        with self.store.store.reading() as reading:
            return reading.window_at(self.store.now)

    def step(self):
        act = self.choose.choices(["send", "later", "look", "move", "begin"], [8, 3, 2, 3, 1])[0]
        if act == "send":
            self.send()
        elif act == "begin":
            self.store.now += MINUTE  # no two in one minute
            self.steps, self.step_ms, self.begun = self.steps + 1, self.store.now, len(self.arrived)
            begin_step(self.store, self.steps)
        elif act == "look":
            self.check()
        elif act == "move" and all(each.answered == len(each.frames) for each in self.senders):
            # what is on its way came before; within a minute a device is in one group
            self.groups = {name: self.choose.choice(sorted(VERSIONS)) for name in self.groups}
            self.store.now += MINUTE
        else:
            self.store.now += self.choose.choice([1, 2, 90, 700, 2_900, -50, -9_000]) * MINUTE

    def every(self, first=0):
        found = []
        for sender, number in self.arrived[first:]:
            minute = sender.minutes[number]
            found += [Said(**vars(each) | {"minute": minute}) for each in sender.said[number]]
        return found

    def check(self):
        every, reader = self.every(), self.choose.choice(self.readers)
        for version in VERSIONS.values():
            expect(reader.health(TASK, version), [e for e in every if e.version == version])
        self.check_groups(every, reader)
        last = {e.device: e.version for e in sorted(every, key=lambda each: each.minute)}
        with self.store.reading() as reading:
            assert reading.device_counts(TASK) == Counter(last.values())

    def check_groups(self, every, reader):
        found = reader.release_health(
            ReleaseHealthQuery(
                release_id="r1", task=TASK, version="v2", before="v1", step_ms=self.step_ms
            )
        )
        for group, version in VERSIONS.items():
            told = getattr(found, group)
            named = [e for e in every if e.version == version and e.group is not None]
            expect(told.release, named)
            own = [each for each in named if each.group == group]
            # a step begins with its first report
            later = [e.minute for e in self.every(self.begun) if e.group == group]
            since = min(later, default=END)
            if since > self.window() - 26 * 60:  # else it is known to the hour
                expect(told.step, [e for e in own if e.minute >= since], weighed(own, since))
            for window in told.windows:
                assert window.number <= self.window() - 2
                expect_window(window, own, every)


def weighed(said, since):
    """Devices that count by times: each once, in its second minute in the step."""
    minutes = {(each.device, each.minute) for each in said if each.minute >= since}
    return sum(count > 1 for count in Counter(device for device, _ in minutes).values())


def expect(found, said, devices=None):
    assert found.runs == sum(each.runs for each in said)
    assert found.failures == sum(each.failures for each in said)
    assert found.devices == len({each.device for each in said})
    assert found.failing_devices == len({each.device for each in said if each.failures})
    assert found.crashing_devices == len({each.device for each in said if each.crashes})
    assert found.device_minutes == len({(each.device, each.minute) for each in said})
    devices = found.device_minutes if devices is None else devices
    assert sum(found.latency_us.values()) == pytest.approx(devices)


def expect_window(window, own, every):
    inside = [each for each in own if each.minute == window.number]
    for name in ("failures", "crashes"):
        at_risk, reached = [0] * len(LEVELS), [0] * len(LEVELS)
        for device in {each.device for each in inside}:
            told = [each for each in every if each.device == device and each.group]
            before = sum(getattr(e, name) for e in told if e.minute < window.number)
            # of an hour that comes at once the first report counts
            first = next(getattr(each, name) for each in inside if each.device == device)
            for place, level in enumerate(LEVELS):
                at_risk[place] += before < level
                reached[place] += before < level <= before + first
        assert list(getattr(window, f"{name}_at_risk")) == at_risk
        assert list(getattr(window, f"{name}_reached")) == reached


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.booleans())
def test_every_frame_counts_once_and_every_figure_is_right(seed, needs_receipts):
    fleet = Fleet(random.Random(seed), needs_receipts)
    with closing(fleet.store):
        for _ in range(STEPS):
            fleet.step()
        fleet.check()
        for sender in fleet.senders:
            while sender.answered < len(sender.frames):
                fleet.send()
        fleet.store.now += 3 * MINUTE
        fleet.check()
