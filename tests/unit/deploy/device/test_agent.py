import logging

import pytest

from walle_deploy.device import agent as module
from walle_deploy.device.agent import AGAIN_MAX_MS, DeviceAgent, Outcome
from walle_deploy.device.client import CheckReply
from walle_deploy.device.receipts import ReceiptBook
from walle_deploy.model.held import HOUR_MS, HeldReceipt, HeldReceipts
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import Push, PushedTask
from walle_deploy.model.receipts import Receipt, ReceiptKeys, peek
from walle_stream.app.programs.installation import NO_HOST
from walle_stream.errors import (
    IntegrityError,
    PackageError,
    ServiceUnreachableError,
    StoreFullError,
)
from walle_stream.ports import InstalledTask

NOTHING = CheckReply(None)


class World:
    """Client, files and installer of one device."""

    def __init__(self):
        self.answer, self.profiles = NOTHING, []
        self.has, self.bad, self.unreadable, self.own = {}, {}, {}, {}
        self.recorded, self.is_full, self.cleared = [], False, 0
        self.calls, self.reports = [], []

    def report_refusal(self, *report):
        self.reports.append(report)

    def check(self, profile):
        self.profiles.append(profile)
        return self.answer

    def pull(self, _device, task, metadata_url, service_ms):
        self.calls.append((task.task, task.version, metadata_url, service_ms))
        if task.version in self.unreadable:
            raise self.unreadable[task.version]
        return {"": b"package", "prices": b"1"}

    def record(self, _device, task):
        if self.is_full:
            raise StoreFullError("full")
        self.recorded.append((task.task, task.version))

    def clear(self):
        self.cleared += 1

    def tasks_of(self, device_ids):
        return {device: dict(self.has) for device in device_ids}

    def install(self, changes):
        for device, tasks in changes.items():
            bad = [self.bad[name] for name in tasks if name in self.bad]
            if bad and isinstance(bad[0], Exception):
                raise bad[0]
            if bad:
                return {device: bad[0]}
            for name, change in tasks.items():
                if change == "definition" and name in self.own:
                    self.has[name] = self.own[name]
                elif change is None or change == "definition":
                    del self.has[name]
                else:
                    assert change.resources == {"prices": b"1"}
                    version = change.origin.rpartition("@")[2]
                    self.has[name] = InstalledTask(version, (), name, origin=change.origin)
        return {}


@pytest.fixture
def clock(monkeypatch):
    at = [0.0]
    monkeypatch.setattr(module, "monotonic_ms", lambda: at[0])
    return at


@pytest.fixture
def world():
    return World()


@pytest.fixture
def agent(world, clock):
    return DeviceAgent(DeviceProfile("d-1"), world, world, world)


def push(*names):
    tasks = (name.partition("@") for name in names)
    return CheckReply(Push(tuple(PushedTask(task, version) for task, _, version in tasks), "m/"), 7)


def test_a_version_is_pulled_installed_recorded_and_told(world, agent):
    assert agent.check() is Outcome.NOTHING_NEW
    world.answer = push("shop/a@v1", "shop/b@v1")
    assert agent.check() is Outcome.INSTALLED
    assert world.calls == [("shop/a", "v1", "m/", 7), ("shop/b", "v1", "m/", 7)]
    assert world.recorded == [("shop/a", "v1"), ("shop/b", "v1")]
    world.answer = NOTHING
    agent.check()
    assert world.profiles[-1].tasks == {"shop/a": "v1", "shop/b": "v1"}


def test_what_the_host_has_is_told_after_a_restart(world, agent):
    world.has = {
        "a": InstalledTask("2", (), "a", origin="shop/a@v2"),
        "own": InstalledTask("1", (), "own"),
    }
    agent.learn()
    assert agent.profile.tasks == {"shop/a": "v2"}
    scenario = DeviceAgent(DeviceProfile("d-1"), world, world, world, "shop")
    scenario.learn()
    assert scenario.profile.tasks == {"shop/a": "v2", "shop/own": "1"}


@pytest.mark.parametrize(
    "error", [IntegrityError("no"), ServiceUnreachableError("no"), StoreFullError("no")]
)
def test_what_cannot_be_pulled_is_tried_again_after_pauses_that_double(
    world, agent, clock, caplog, error
):
    world.answer, world.unreadable = push("shop/a@v1"), {"v1": error}
    pauses = []
    for _ in range(12):
        assert agent.check() is Outcome.REFUSED
        until_ms = agent._failed["shop/a", "v1"].until_ms
        pauses.append(until_ms - clock[0])
        clock[0] = until_ms - 1
        assert agent.check() is Outcome.REFUSED  # too early, it is not pulled
        assert len(world.calls) == len(pauses)
        clock[0] = until_ms
    assert pauses[:3] == [2_000.0, 4_000.0, 8_000.0]
    assert world.cleared == (12 if isinstance(error, StoreFullError) else 0)
    assert pauses[-1] == AGAIN_MAX_MS
    assert caplog.records[0].device_id == "d-1"
    assert caplog.records[0].task == "shop/a"
    world.unreadable = {}
    assert agent.check() is Outcome.INSTALLED
    assert not agent._failed


@pytest.mark.parametrize("bad", ["its state cannot go back", PackageError("another task's")])
def test_one_task_that_cannot_be_installed_keeps_no_other_away(world, agent, bad):
    world.answer, world.bad = push("shop/a@v1", "shop/b@v1", "shop/c@v1"), {"b": bad}
    assert agent.check() is Outcome.REFUSED
    assert world.recorded == [("shop/a", "v1"), ("shop/c", "v1")]
    assert agent.profile.tasks == {"shop/a": "v1", "shop/c": "v1"}
    assert list(agent._failed) == [("shop/b", "v1")]


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (IntegrityError("no"), "not installed: IntegrityError"),
        (PackageError("no"), "not installed: PackageError"),
        ("its state cannot go back", "not installed: state"),
        (ServiceUnreachableError("no"), None),
        (StoreFullError("no"), None),
        (NO_HOST, None),
    ],
)
def test_what_is_refused_for_good_is_reported_once(world, agent, clock, error, reported):
    if isinstance(error, IntegrityError | ServiceUnreachableError):
        world.unreadable = {"v1": error}
    else:
        world.bad = {"a": error}
    for _ in range(2):
        world.answer = push("shop/a@v1", "shop/b@v2")
        told = len(world.reports)
        for number in range(5):
            assert (len(world.reports) > told) == (number > 2 and reported is not None)
            assert agent.check() is Outcome.REFUSED
            clock[0] += AGAIN_MAX_MS
        world.answer = NOTHING
        agent.check()
        world.answer = push("shop/c@v2")
        agent.check()  # offered to the device no more: when it is again, that is news
    expected = [("d-1", "shop/a", "v1", reported)] if reported else []
    assert world.reports == 2 * expected


def test_an_uninstallation_pulls_nothing(world, agent):
    world.answer = push("shop/a@v1")
    agent.check()
    world.calls.clear()
    world.answer = push("shop/a")
    assert agent.check() is Outcome.INSTALLED
    assert (world.has, world.calls) == ({}, [])
    assert world.recorded[-1] == ("shop/a", "")


def test_what_took_the_place_of_the_apps_own_task_gives_it_back(world, clock):
    world.own = {"a": InstalledTask("1", (), "a")}
    world.has = dict(world.own)
    agent = DeviceAgent(DeviceProfile("d-1"), world, world, world, "shop")
    agent.learn()
    world.answer = push("shop/a@v1")
    agent.check()
    assert agent.profile.tasks == {"shop/a": "v1"}
    world.answer = push("shop/a")
    assert agent.check() is Outcome.INSTALLED
    assert agent.profile.tasks == {"shop/a": "1"}
    assert agent.check() is Outcome.INSTALLED  # who says so again means that one
    assert (agent.profile.tasks, world.has) == ({}, {})


def test_a_task_of_another_scenario_does_not_take_the_place_of_one(world, agent, caplog):
    world.answer = push("shop/a@v1")
    agent.check()
    for name in ("read/a@v1", "read/a"):
        world.answer = push(name)
        assert agent.check() is Outcome.REFUSED
        assert "has a task of this name, shop/a" in caplog.text
    assert world.has["a"].origin == "shop/a@v1"
    world.answer = push("shop/z")
    assert agent.check() is Outcome.REFUSED
    assert "no such task" in caplog.text


def test_of_two_tasks_of_one_name_the_first_comes(world, agent):
    world.answer = push("shop/a@v1", "read/a@v1")
    assert agent.check() is Outcome.REFUSED
    assert world.has["a"].origin == "shop/a@v1"


def test_a_record_that_cannot_be_written_does_not_undo_what_is_installed(world, agent, caplog):
    world.answer, world.is_full = push("shop/a@v1"), True
    assert agent.check() is Outcome.INSTALLED
    assert agent.profile.tasks == {"shop/a": "v1"}
    assert "installed, but not recorded: full" in caplog.text


def test_a_service_that_makes_up_versions_is_not_remembered_for_ever(world, agent):
    for number in range(50):
        world.unreadable = {f"v{number}": IntegrityError("no")}
        world.answer = push(f"shop/a@v{number}")
        agent.check()
    assert len(agent._failed) == 1


def test_installations_are_said_at_info(world, agent, caplog):
    caplog.set_level(logging.INFO)
    for name in ("shop/a@v1", "shop/a"):
        world.answer = push(name)
        agent.check()
    assert [each.getMessage() for each in caplog.records] == [
        "installed shop/a@v1",
        "uninstalled shop/a",
    ]


KEYS = ReceiptKeys.create()
KEY, _ = peek(KEYS.issue(Receipt("", "", "")))


def given(version, task="shop/a", release="", group=""):
    receipt = Receipt("d-1", task, version, release, group, 500_000 * HOUR_MS)
    return {task: KEYS.issue(receipt)}


def test_receipts_alone_are_kept_and_nothing_is_installed(world, clock, tmp_path):
    book = ReceiptBook(tmp_path / "receipts", ["d-1"])
    agent = DeviceAgent(DeviceProfile("d-1"), world, world, world, receipts=book)
    world.has = {"a": InstalledTask("1", (), "a", origin="shop/a@v1")}
    agent.learn()
    agent.check()
    assert world.profiles[-1].receipts == HeldReceipts(0, {"shop/a": HeldReceipt()})
    world.answer = CheckReply(Push((), receipts=given("v1")), 7)
    assert agent.check() is Outcome.NOTHING_NEW
    world.answer = NOTHING
    agent.check()
    assert world.profiles[-1].receipts == HeldReceipts(500_000, {}, [KEY])
    assert (world.calls, world.recorded) == ([], [])
    again = DeviceAgent(
        DeviceProfile("d-1"),
        world,
        world,
        world,
        receipts=ReceiptBook(tmp_path / "receipts", ["d-1"]),
    )
    again.learn()
    assert again.profile.receipts == HeldReceipts(500_000, {}, [KEY])


def test_a_version_has_its_receipt_before_it_runs(world, clock, tmp_path):
    book = ReceiptBook(tmp_path / "receipts", ["d-1"])
    agent = DeviceAgent(DeviceProfile("d-1"), world, world, world, receipts=book)
    seen, install = [], world.install

    def watched(changes):
        seen.append(book("d-1", "shop/a", "v2").group)
        return install(changes)

    world.install = watched
    world.answer = CheckReply(
        Push((PushedTask("shop/a", "v2"),), "m/", given("v2", release="r", group="new")), 7
    )
    assert agent.check() is Outcome.INSTALLED
    assert seen == ["new"]
    held = HeldReceipt(500_000, "r", "new")
    assert agent.profile.receipts == HeldReceipts(0, {"shop/a": held}, [KEY])


def test_a_device_that_takes_none_says_nothing_of_them(world, agent):
    world.answer = CheckReply(Push((), receipts=given("v1")), 7)
    assert agent.check() is Outcome.NOTHING_NEW
    assert agent.profile.receipts is None
