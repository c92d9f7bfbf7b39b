"""Faults of an audit log that the chaos campaign finds, and logs that it accepts."""

import pytest

from tests.unit.deploy.hasty import hasty
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.audit import AuditEntry
from walle_deploy.release.commands import ReleaseCommands
from walle_deploy.release.events import Tick
from walle_deploy.release.model import Release
from walle_deploy.store.sqlite import SqliteStore
from walle_deploy.testing.chaos.history import two_at_once, wrong_history, wrong_path

TASK = "shop/ipv"


def release(name, version):
    spec = hasty({"task": TASK, "version": version, "gray": [{"percent": 5}, {"percent": 50}]})
    head = {"apiVersion": "walle/v1", "kind": "Release", "metadata": {"name": name}}
    return Release.model_validate({**head, "spec": spec})


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "releases.db")
    commands = ReleaseCommands(store, "test")
    for version in ("v1", "v2", "v3"):
        commands.publish(TASK, version, VersionFiles(()))
    commands.adopt(TASK, "v1")
    commands.create(release("r1", "v2"))
    for _ in range(4):
        commands.apply("r1", lambda look, _: Tick(look.now_ms(), "go", 5))
    commands.create(release("r2", "v3"))
    commands.pause("r2")
    commands.resume("r2")
    commands.apply("r2", lambda look, _: Tick(look.now_ms(), "go", 5))
    commands.create(release("r3", "v2"), supersede=True)
    commands.roll_back("r3")
    commands.create(release("r4", "v3"))
    for _ in range(4):
        commands.advance("r4")
    yield store
    store.close()


def test_what_commands_do_is_a_path(store):
    with store.reading() as transaction:
        assert list(wrong_history(transaction)) == []


def test_what_was_altered_past_the_log_is_found(store):
    with store.writing() as transaction:
        transaction.set_stable(TASK, "v1")
    with store.reading() as transaction:
        [problem] = wrong_history(transaction)
    assert "altered outside the log" in problem


def entry(action, stage, percent=0.0, revision=1, name="r"):
    return AuditEntry(
        number=revision,
        at_ms=0,
        by="",
        action=action,
        release=name,
        task=TASK,
        revision=revision,
        stage=stage,
        percent=percent,
    )


def path(*steps):
    return [entry(*step, revision=number) for number, step in enumerate(steps, 1)]


CREATED = ("create", "created")


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ((("begin", "gray", 5.0),), "it begins with begin"),
        ((CREATED, ("begin", "gray", 50.0), ("begin", "gray", 5.0)), "from gray 50 % to gray 5 %"),
        ((CREATED, ("begin", "gray", 5.0), ("pause", "full", 100.0)), "pause from gray"),
        ((CREATED, ("finish", "done")), "finish from created"),
        ((CREATED, ("rollback", "stopped")), "rollback from created"),
        ((CREATED, ("stop", "stopped"), ("begin", "gray", 5.0)), "it had ended"),
        ((CREATED, ("begin", "full", 100.0), ("begin", "gray", 50.0)), "begin from full"),
        ((CREATED, ("advance", "gray", 5.0), ("advance", "gray", 5.0)), "advance from gray"),
        ((CREATED, ("advance", "done")), "advance from created"),
        ((CREATED, ("advance", "rolled_back")), "advance from created"),
        ((CREATED, ("begin", "full", 100.0), ("begin", "done", 100.0)), "begin from full"),
        ((CREATED, ("else", "gray", 5.0)), "else from created"),
    ],
)
def test_a_step_that_no_release_takes_is_found(steps, problem):
    found = list(wrong_path(path(*steps)))
    assert len(found) == 1
    assert problem in found[0]


def test_a_revision_that_is_left_out_is_found():
    first, second = path(CREATED, ("begin", "gray", 5.0))
    third = entry("begin", "full", 100.0, revision=4)
    assert list(wrong_path([first, second, third])) == ["release r, entry 4: revision 4 follows 2"]


def test_two_open_releases_of_a_task_are_found():
    both = [entry("create", "created", name="a"), entry("create", "created", 0.0, 2, "b")]
    [problem] = two_at_once(both)
    assert "['a', 'b'] of shop/ipv are open at once" in problem
    ended = [both[0], entry("stop", "stopped", name="a"), both[1]]
    assert list(two_at_once(ended)) == []
