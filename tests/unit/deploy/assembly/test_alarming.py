from contextlib import closing, contextmanager

import pytest
from msgspec.structs import replace

from tests.unit.deploy.hasty import hasty
from tests.unit.deploy.monitoring.reporting import Clocked, frame, report
from walle_deploy.assembly.alarming import OfferedVersions, ReleaseNews, alarming
from walle_deploy.model.releases import VersionFiles
from walle_deploy.monitoring.alarms import AlarmBoard
from walle_deploy.monitoring.definition import AlarmRule
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.watch import AlarmWatch, FleetView, WatchOptions
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.controller import CONTROLLER
from walle_deploy.release.events import Tick
from walle_deploy.release.model import Release
from walle_deploy.store.adapters import StoredRows
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import ServiceUnreachableError, SpecFileError

TASK = "shop/ipv"
S = 1_000
RULES = (
    AlarmRule(name="silent", silence="8s"),
    AlarmRule(name="failing", failure_rate=0.1, min_runs=10),
)


@pytest.fixture
def store(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as store:
        commands = ReleaseCommands(store, "ann")
        for version in ("v1", "v2"):
            commands.publish(TASK, version, VersionFiles(()))
        commands.adopt(TASK, "v1")
        yield store


class Watched:
    """Two workers and their alarms, at a time that the test says."""

    def __init__(self, store):
        self.told, self.store = [], Clocked(store, 1_000_000)
        self.workers = [Monitor(self.store) for _ in range(2)]
        self.offered, board = OfferedVersions(store), AlarmBoard(RULES)
        view = FleetView(
            self.store, lambda: self.offered.look() | {key[1:] for key in board.firing}
        )
        options = WatchOptions(StoredRows(store), self.offered.has, news=ReleaseNews(store))
        self.watch = AlarmWatch(view, board, self.told.append, 1_000.0, options)

    def look(self, after_s=1):
        self.store.now += after_s * S
        return [(each.rule, each.version, each.state) for each in self.watch.look(self.store.now)]


@pytest.fixture
def watched(store):
    watched = Watched(store)
    yield watched
    watched.watch.close()


def offer(store, version):
    commands = ReleaseCommands(store, "ann")
    spec = hasty({"task": TASK, "version": version, "gray": []})
    head = {"apiVersion": "walle/v1", "kind": "Release", "metadata": {"name": version}}
    commands.create(Release.model_validate({**head, "spec": spec}))
    commands.apply(version, lambda look, _: Tick(look.now_ms(), "go", 9))


def test_a_version_that_was_replaced_may_be_silent(store, watched):
    watched.workers[0].take([frame(1, report([("d", 5, {})], "v1"))])
    assert watched.look() == []
    offer(store, "v2")
    watched.workers[1].take([frame(2, report([("d", 5, {})], "v2"))])
    ReleaseCommands(store, "ann").apply(
        "v2", lambda look, _: Tick(look.now_ms(), "go", 9)
    )  # v2 is stable now
    assert watched.look(5) == []
    watched.workers[1].take([frame(3, report([("d", 5, {})], "v2"))])
    assert watched.look(6) == []
    assert watched.look(9) == [("silent", "v2", "firing")]
    watched.workers[0].take([frame(4, report([("d", 5, {})], "v2"))])
    assert watched.look() == [("silent", "v2", "resolved")]


def test_all_workers_devices_count(watched):
    watched.workers[0].take([frame(1, report([("a", 50, {})], "v1"))])
    assert watched.look() == []
    watched.workers[1].take([frame(2, report([("b", 50, {"E": 20})], "v1"))])
    assert watched.look() == [("failing", "v1", "firing")]
    assert watched.told[-1].runs == 100


def test_what_the_controller_does_by_itself_is_told_once(store, watched):
    offer(store, "v2")
    assert watched.look() == []  # what was before is no news
    ReleaseCommands(store, CONTROLLER).apply(
        "v2", lambda look, _: Tick(look.now_ms(), "stop", 9, "failures: 4 of 9")
    )
    assert watched.look() == [("release", "v2", "firing")]
    assert "was rolled back automatically: failures: 4 of 9" in watched.told[-1].text
    assert watched.look() == []
    assert ReleaseNews(store).look() == []


def test_what_nobody_ever_reported_is_silent_too(store, watched):
    assert watched.look() == []
    assert watched.look(8) == []
    assert watched.look() == [("silent", "v1", "firing")]
    watched.workers[0].take([frame(1, report([("d", 5, {})], "v1"))])
    assert watched.look() == [("silent", "v1", "resolved")]
    offer(store, "v2")  # to all: nobody should have v1
    assert watched.look(9) == []
    assert watched.look(9) == [("silent", "v2", "firing")]


def test_a_store_that_fails_amid_a_look_costs_no_message(store, watched, monkeypatch):
    assert watched.look() == []
    watched.workers[0].take([frame(1, report([("a", 50, {"E": 20})], "v1"))])
    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "reading", _break_at_the_news(SqliteStore.reading))
        with pytest.raises(ServiceUnreachableError):
            watched.look()
    assert watched.told == []
    assert watched.look() == [("failing", "v1", "firing")]


def _break_at_the_news(reading):
    """Open a transaction in which the audit log cannot be read."""

    @contextmanager
    def opened(store):
        with reading(store) as transaction:
            transaction.audit_head = _broken
            yield transaction

    return opened


def _broken():
    raise ServiceUnreachableError("the disk is gone")


def test_what_nobody_took_is_told_again_under_the_same_id(store):
    first, is_idle = Watched(store), False
    first.watch.close()
    assert first.look() == []
    first.watch._options = replace(first.watch._options, is_idle=lambda: is_idle)
    offer(store, "v2")
    ReleaseCommands(store, CONTROLLER).apply(
        "v2", lambda look, _: Tick(look.now_ms(), "stop", 9, "failures: 4 of 9")
    )
    first.workers[0].take([frame(1, report([("a", 50, {"E": 20})], "v1"))])
    both = [("release", "v2", "firing"), ("failing", "v1", "firing")]
    assert first.look() == both
    assert first.look() == []  # it waits still
    # the process dies before anybody took them
    second = Watched(store)
    second.watch.close()
    assert second.look() == both
    assert second.told[0] == first.told[0]
    assert second.look() == []
    is_idle = True
    third = Watched(store)
    third.watch.close()
    assert third.look() == []


def test_what_people_do_is_no_alarm(store, watched):
    offer(store, "v2")
    watched.look()
    ReleaseCommands(store, "bob").roll_back("v2", "second thoughts")
    assert watched.look() == []


def test_a_wrong_file_is_refused(store, tmp_path):
    (tmp_path / "alarms.yaml").write_text("kind: Alarms\n")
    with pytest.raises(SpecFileError), alarming(store, tmp_path / "alarms.yaml"):
        pass
