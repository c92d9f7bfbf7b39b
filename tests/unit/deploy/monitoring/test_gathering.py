import asyncio
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.deploy.monitoring.reporting import TASK, Clocked, frame, health, publish, report
from walle_deploy.monitoring.monitor import Monitor, ReportGatherer
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import DeployError, ForbiddenError, ServiceUnreachableError

DEVICES = ["d0", "d1", "d2"]


class Noting:
    """A monitor that notes what it is given at once, and waits in the first call."""

    def __init__(self, error=None):
        self.calls, self.error = [], error
        self.inside, self.go_on = threading.Event(), threading.Event()

    def take_together(self, calls):
        self.calls.append([device for _, device in calls])
        self.inside.set()
        self.go_on.wait()
        if self.error is not None and any(device == "bad" for _, device in calls):
            raise self.error
        return [len(frames) for frames, _ in calls]


async def gathered(monitor, *names, gone=()):
    """Let the first call be stored alone, and the others come meanwhile."""
    gatherer = ReportGatherer(monitor)
    first = asyncio.create_task(gatherer.receive([1], "first"))
    await asyncio.to_thread(monitor.inside.wait)
    others = [asyncio.create_task(gatherer.receive([1, 2], name)) for name in names]
    await asyncio.sleep(0)
    for place in gone:
        others[place].cancel()
    monitor.go_on.set()
    found = await asyncio.gather(first, *others, return_exceptions=True)
    assert await gatherer.receive([1, 2, 3], "last") == 3
    return found


def test_what_comes_while_some_is_stored_is_stored_together():
    monitor = Noting()
    assert asyncio.run(gathered(monitor, "a", "b", "c")) == [1, 2, 2, 2]
    assert monitor.calls == [["first"], ["a", "b", "c"], ["last"]]


def test_who_has_gone_keeps_nobody_from_an_answer():
    found = asyncio.run(gathered(Noting(), "a", "b", "c", gone=[1]))
    assert (found[1], type(found[2]), found[3]) == (2, asyncio.CancelledError, 2)


@pytest.mark.parametrize("error", [DeployError("no"), OverflowError("no")])
def test_what_the_store_does_not_take_fails_alone(error):
    monitor = Noting(error)
    assert asyncio.run(gathered(monitor, "a", "bad", "c")) == [1, 2, error, 2]
    assert monitor.calls == [["first"], ["a", "bad", "c"], ["a"], ["bad"], ["c"], ["last"]]


def test_nobody_waits_for_others_attempts_at_a_store_that_is_away():
    error = ServiceUnreachableError("away")
    monitor = Noting(error)
    assert asyncio.run(gathered(monitor, "a", "bad", "c")) == [1, error, error, error]
    assert monitor.calls == [["first"], ["a", "bad", "c"], ["last"]]


@given(
    st.lists(
        st.tuples(st.sampled_from(DEVICES), st.sampled_from(["", *DEVICES]), st.integers(0, 4))
    )
)
def test_calls_together_count_as_one_by_one(calls):
    made = [
        ([frame(number, report([(of, 1, {})], "v1"), partition=DEVICES.index(of))], sender)
        for of, sender, number in calls
    ]
    results = []
    for is_together in (True, False):
        with closing(SqliteStore(Path(":memory:"))) as plain:
            publish(plain, "v1")
            store = Clocked(plain)
            monitor = Monitor(store)
            found = (
                monitor.take_together(made) if is_together else [alone(monitor, e) for e in made]
            )
            kinds = [type(each) if isinstance(each, Exception) else each for each in found]
            results.append((kinds, health(store, task=TASK).runs, monitor.counts))
    assert results[0] == results[1]


def alone(monitor, call):
    try:
        return monitor.take(*call)
    except ForbiddenError as error:
        return error
