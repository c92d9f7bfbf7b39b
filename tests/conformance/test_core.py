"""The Python core passes the differential suite, broken ones do not; nobody above it sees events."""

import ast
from pathlib import Path

import msgspec
import pytest

from walle_stream.stream.commands import Woken
from walle_stream.stream.machine import PartitionMachine
from walle_stream.testing.core_suite import CoreSuite, compare

ROOT = Path(__file__).resolve().parents[2] / "walle_stream"
ABOVE = ("actors", "app", "cli", "engine", "ports", "store", "tunnel", "vm")
ENOUGH = range(150)


class TestPartitionMachine(CoreSuite):
    def make_core(self, *args):
        return PartitionMachine(*args)


class KeepsClosedPages(PartitionMachine):
    def delta(self, *args):
        return [msgspec.structs.replace(each, closed_pages=[]) for each in super().delta(*args)]


class WritesInAnotherOrder(PartitionMachine):
    def delta(self, *args):
        return super().delta(*args)[::-1]


class TakesBatchesTwice(PartitionMachine):
    def activate(self, device_id, row, pages):
        super().activate(device_id, row, pages)
        self._devices[device_id].as_of = -1


class ForgetsTimers(PartitionMachine):
    def arm(self, device_id, deadline_ms):
        pass


class LosesLateEvents(PartitionMachine):
    def late(self, event):
        self.duplicate(event)


class NumbersByTask(PartitionMachine):
    def complete(self, results):
        results = sorted(results, key=lambda each: (each[0].task, each[0].position))
        return [each for one in results for each in super(NumbersByTask, self).complete([one])]


class InstallsNothing(PartitionMachine):
    def install(self, device_id, task_set):
        pass


class EndsMatchesWithABatch(PartitionMachine):
    def take(self, batch, *, is_end=False):
        for device in self._devices.values():
            device.cursor = ()
        return super().take(batch, is_end=is_end)


class AppendsToRunsThatLeft(PartitionMachine):
    def __init__(self, *args):
        super().__init__(*args)
        self._waking = Hidden()


class Hidden(list):
    def __iter__(self):
        return iter(())


class SeesTheFutureOfAPage(PartitionMachine):
    def take(self, batch, *, is_end=False):
        woken = super().take(batch, is_end=is_end)
        for by_device in woken.runs.values():
            for runs in by_device.values():
                runs[:] = [(*run, _whole(page)) for *run, page in runs]
        return woken


class HidesWhatItRefused(PartitionMachine):
    def take(self, batch, *, is_end=False):
        runs, refused, *counts = super().take(batch, is_end=is_end)
        return Woken(runs, [row for row in refused if row.route == "late"], *counts)


class ForgetsWhatWasEmitted(PartitionMachine):
    def set_numbers(self, device_id, next_number, next_call):
        pass


def differs(make_core, seed):
    try:
        compare(make_core, seed)
    except (AssertionError, KeyError):
        return True
    return False


def _whole(page):
    return (page[0], len(page[0].rows)) if len(page) == 2 else page


@pytest.mark.parametrize(
    "broken",
    [
        each
        for each in list(globals().values())
        if isinstance(each, type) and PartitionMachine in each.__bases__
    ],
)
def test_a_broken_core_is_found(broken):
    assert any(differs(broken, seed) for seed in ENOUGH)


def test_no_module_above_the_core_knows_the_event():
    found = []
    for path in (path for folder in ABOVE for path in (ROOT / folder).rglob("*.py")):
        if "guest" in path.parts:
            continue  # a script's own view of its page
        for node in ast.walk(ast.parse(path.read_text())):
            is_here = isinstance(node, ast.ImportFrom) and node.module == "walle_stream.events"
            if is_here and any(each.name == "Event" for each in node.names):
                found.append(str(path.relative_to(ROOT)))
    assert found == []
