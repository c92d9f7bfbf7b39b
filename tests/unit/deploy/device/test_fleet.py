import itertools
import threading

import pytest

from walle_deploy.device import fleet as module
from walle_deploy.device.agent import Outcome
from walle_deploy.device.fleet import Fleet
from walle_stream.errors import IntegrityError, ServiceBusyError, ServiceUnreachableError

WAIT_S = 20


class Agent:
    """Answers what it was given, then nothing new; tells when it was asked."""

    def __init__(self, *outcomes, device="d"):
        self.outcomes = itertools.chain(outcomes, itertools.repeat(Outcome.NOTHING_NEW))
        self.device, self.learned, self.asked = device, 0, 0
        self.changed = threading.Condition()

    def learn(self):
        self.learned += 1

    def check(self):
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
        outcome = next(self.outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def await_asked(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.asked >= count, WAIT_S)


@pytest.fixture
def kept():
    fleets = []

    def keep(*agents, every_s=0.001, threads=2):
        made = Fleet(agents, every_s, threads)
        fleets.append(made)
        made.start()
        return made

    yield keep
    for each in fleets:
        each.close()


@pytest.mark.parametrize(
    "error",
    [
        IntegrityError("no push"),
        ServiceUnreachableError("away"),
        ServiceBusyError("busy", 0.001),
        OSError(5, "Input/output error"),
        ZeroDivisionError("a mistake"),
    ],
)
def test_no_error_ends_the_asking(kept, error):
    agent = Agent(error, error, Outcome.INSTALLED)
    fleet = kept(agent, threads=1)
    agent.await_asked(5)
    fleet.close()
    assert agent.learned == 1
    assert fleet.counts[Outcome.INSTALLED.value] == 1
    assert fleet.counts["busy"] + fleet.counts["checks that failed"] == 2


def test_a_reason_is_logged_once_until_it_is_another_one_or_over(kept, caplog):
    away, wrong = ServiceUnreachableError("away"), IntegrityError("no push")
    agent = Agent(away, away, away, wrong, wrong, Outcome.NOTHING_NEW, wrong)
    kept(agent, threads=1)
    agent.await_asked(8)
    lines = [each.getMessage().partition(",")[0] for each in caplog.records]
    again = "no push; next attempt later; this is logged once for all devices with this failure"
    assert lines[:4] == [
        "away; next attempt later; this is logged once for all devices with this failure",
        again,
        "no push; that is over",
        again,
    ]
    assert caplog.records[0].device_id == "d"


def test_a_mistake_of_ours_is_logged_with_its_place(kept, caplog):
    agent = Agent(KeyError("x"))
    kept(agent)
    agent.await_asked(2)
    assert "Traceback" in caplog.text


def test_pauses_grow_with_failures_to_a_longest_one():
    agent = Agent(*[ServiceUnreachableError("away")] * 9, device="d")
    fleet = Fleet([agent], 10.0)
    assert [fleet._check(0) for _ in range(5)] == [20_000.0, 40_000.0, 60_000.0, 60_000.0, 60_000.0]
    slow = Fleet([Agent(ServiceUnreachableError("away"))], 600.0)
    assert slow._check(0) == 600_000.0  # never sooner than without a failure


def test_pauses_after_each_outcome():
    busy = ServiceBusyError("busy", 7.0)
    agent = Agent(Outcome.NOTHING_NEW, Outcome.REFUSED, Outcome.INSTALLED, busy)
    fleet = Fleet([agent], 10.0)
    assert [fleet._check(0) for _ in range(4)] == [10_000.0, 10_000.0, 1_000.0, 7_000.0]


def test_first_checks_are_spread_over_an_interval(monkeypatch):
    monkeypatch.setattr(module, "monotonic_ms", lambda: 0.0)
    fleet = Fleet([Agent() for _ in range(4)], 10.0)
    assert sorted(fleet._due) == [(0.0, 0), (2_500.0, 1), (5_000.0, 2), (7_500.0, 3)]


def test_all_devices_are_asked_and_closing_ends_it(kept):
    agents = [Agent(device=f"d-{number}") for number in range(7)]
    fleet = kept(*agents)
    for agent in agents:
        agent.await_asked(3)
    fleet.close()
    asked = [agent.asked for agent in agents]
    assert not any(thread.is_alive() for thread in fleet._threads)
    assert [agent.asked for agent in agents] == asked


def test_a_fleet_of_none_closes(kept):
    kept(every_s=100.0).close()
