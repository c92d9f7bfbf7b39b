"""Versions of a task on devices of a running host: no restart, no event lost, states go along."""

import json
import threading
from contextlib import contextmanager

import pytest

from tests.integration.scripted_visits import PIPELINE
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.programs.installed import NewVersion
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.errors import PackageError
from walle_stream.testing.scripted import Gates, pause, write_script

pytestmark = [pytest.mark.integration, pytest.mark.vm]

WAIT_S = 60.0
FIRST = """
def run(ctx, page):
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    ctx.emit({"v": 1, "visit": visits, "events": len(page.events)})
"""
SECOND = """
def migrate(old):
    return {"count": old["visits"] if old.version == 1 else old["count"]}

def run(ctx, page):
    count = ctx.state.get("count", 0) + 1
    ctx.state.put("count", count)
    ctx.emit({"v": 2, "visit": count, "events": len(page.events), "by": ctx.task})
"""
OTHER = """
def run(ctx, page):
    ctx.emit({"other": ctx.resource("mine").decode()})
"""
TASK = """
apiVersion: walle/v1
kind: Task
metadata: {name: NAME}
spec:
  script: NAME.py
  version: v2
  stateVersion: LAYOUT
  triggers:
    - sequence: [page_exit]
"""


def package(folder, name, script, layout=1):
    folder.mkdir()
    (folder / f"{name}.py").write_text(script)
    (folder / "task.yaml").write_text(TASK.replace("NAME", name).replace("LAYOUT", str(layout)))
    return package_task(find_task(folder / "task.yaml"))


def event(device, kind, time_ms, instance):
    base = {"device_id": device, "page_id": "shop", "page_instance": str(instance)}
    return {**base, "kind": kind, "event_time_ms": time_ms}


def visits(count, start):
    for number in range(count):
        for device in ("phone-0", "phone-1", "phone-2"):
            at = (start + number) * 1_000
            yield event(device, "page_enter", at, at)
            yield event(device, "page_exit", at + 500, at)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "visits.py").write_text(FIRST)
    steps = [
        *visits(2, 0),
        *[event(f"phone-{n}", "page_enter", 2_000, "open") for n in range(3)],
        pause("first"),
        *[event(f"phone-{n}", "page_exit", 2_500, "open") for n in range(3)],
        *visits(2, 3),
        pause("second"),
        *visits(2, 5),
        pause("third"),
        *visits(2, 7),
    ]
    write_script(tmp_path / "steps.jsonl", steps)
    return tmp_path


@contextmanager
def running(folder, *, is_last=True):
    """A run in a thread, and the gates that it stops at."""
    assembly = Assembly.load(folder / "pipeline.yaml")
    run = LocalRun(assembly, RunOptions(folder / "data", 2))
    ended = []
    thread = threading.Thread(target=lambda: ended.append(run.run()))
    thread.start()
    gates = Gates(folder / "steps.jsonl.gates")
    try:
        yield run, gates
    finally:
        for name in ("first", "second", "third") if is_last else ():
            gates.release(name)
        if not is_last:
            run.stop("test")
        thread.join(WAIT_S)
    assert ended, "the run failed"


def await_ready(run):
    ready, polls = threading.Event(), iter(range(6_000))
    while not run.is_ready and next(polls, None) is not None:
        ready.wait(0.01)
    assert run.is_ready


def features(folder):
    found = {}
    for line in features_lines(folder / "data"):
        row = json.loads(line)
        key = row["device_id"], row["task"]
        found.setdefault(key, []).append((row["task_version"], row["feature"]))
    return found


def test_devices_of_one_host_have_versions_of_their_own(folder):
    second = NewVersion(package(folder / "two", "visits", SECOND, layout=2))
    with running(folder) as (run, gates):
        assert gates.await_reached("first", WAIT_S)
        install = run.installation.install
        assert install({"phone-1": {"visits": second}}) == {}
        gates.release("first")
        assert gates.await_reached("second", WAIT_S)
        # back to a layout that was kept, and forward for another
        assert install({"phone-1": {"visits": "definition"}, "phone-2": {"visits": second}}) == {}
        gates.release("second")
        assert gates.await_reached("third", WAIT_S)
        assert install({"phone-0": {"visits": None}}) == {}
        tasks = run.installation.tasks_of(["phone-0", "phone-1", "phone-2", "nobody"])
        assert {name: [t.version for t in each.values()] for name, each in tasks.items()} == {
            "phone-0": [],
            "phone-1": ["1"],
            "phone-2": ["v2"],
            "nobody": ["1"],
        }
    found = features(folder)
    assert [(v, f["visit"], f["events"]) for v, f in found["phone-0", "visits"]] == [
        ("1", n, 2) for n in range(1, 8)
    ]  # then it was uninstalled
    # the page that was open goes on with all of its events; the state is migrated, then restored
    assert [(v, f["visit"], f["events"]) for v, f in found["phone-1", "visits"]] == [
        *[("1", 1, 2), ("1", 2, 2), ("v2", 3, 2), ("v2", 4, 2), ("v2", 5, 2)],
        *[("1", n, 2) for n in range(3, 7)],
    ]
    assert [(v, f["visit"]) for v, f in found["phone-2", "visits"]] == [
        *[("1", n) for n in range(1, 6)],
        *[("v2", n) for n in range(6, 10)],
    ]
    assert {f.get("by") for v, f in found["phone-2", "visits"] if v == "v2"} == {"visits"}


@pytest.mark.parametrize(("is_new", "layout"), [(False, 2), (True, 2), (True, 3)])
def test_a_state_that_began_with_a_later_layout_goes_when_its_device_goes_back(
    folder, is_new, layout
):
    first = NewVersion(package(folder / "one", "other", FIRST))
    second = NewVersion(package(folder / "two", "other", SECOND, layout=layout))
    with running(folder) as (run, gates):
        assert gates.await_reached("first", WAIT_S)
        install = run.installation.install
        for version in (second,) if is_new else (first, second):  # the first one never ran
            assert install({"phone-1": {"other": version}}) == {}
        gates.release("first")
        assert gates.await_reached("second", WAIT_S)
        assert install({"phone-1": {"other": first}}) == {}
        gates.release("second")
        assert gates.await_reached("third", WAIT_S)
        assert install({"phone-1": {"other": second}}) == {}
    found = [(f["v"], f["visit"]) for _, f in features(folder)["phone-1", "other"]]
    assert found == [(2, 1), (2, 2), (2, 3), (1, 1), (1, 2), (2, 3), (2, 4)]


def test_a_new_process_goes_on_with_what_was_installed(folder):
    second = NewVersion(package(folder / "two", "visits", SECOND, layout=2))
    mine = {name: NewVersion(
        package(folder / name, "other", OTHER), {"mine": name.encode()}
    ) for name in ("a", "b")}  # fmt: skip
    with running(folder, is_last=False) as (run, gates):
        assert gates.await_reached("first", WAIT_S)
        install = run.installation.install
        assert install({
            "phone-1": {"visits": second, "other": mine["a"]},
            "phone-2": {"other": mine["b"]},
        }) == {}  # fmt: skip
        gates.release("first")
        assert gates.await_reached("second", WAIT_S)
    before = {line for line in canonical_state(folder / "data") if b"task_set" in line}
    assert len(before) == 2
    with running(folder) as (run, gates):
        await_ready(run)
        packages = folder / "data" / "packages"
        assert len(list(packages.iterdir())) == 4  # two packages of one content are one
        # no event came yet, so no program was loaded: what phone-1 has must stay
        assert run.installation.install({"phone-2": {"visits": None}}) == {}
        assert len(list(packages.iterdir())) == 4
        gates.release("second")
        assert gates.await_reached("third", WAIT_S)
        assert run.installation.install({"phone-2": {"other": None}}) == {}
        assert len(list(packages.iterdir())) == 3
    found = features(folder)
    assert [v for v, _ in found["phone-1", "visits"]] == ["1"] * 2 + ["v2"] * 7
    assert [f["other"] for _, f in found["phone-1", "other"]] == ["a"] * 7
    assert [f["other"] for _, f in found["phone-2", "other"]] == ["b"] * 5
    assert [f["visit"] for _, f in found["phone-2", "visits"]] == list(range(1, 6))


def test_what_cannot_be_installed_changes_nothing(folder):
    good = package(folder / "two", "visits", SECOND, layout=2)
    with running(folder) as (run, gates):
        assert gates.await_reached("first", WAIT_S)
        install = run.installation.install
        for data, name in ((good[:-9], "visits"), (b"no", "visits"), (good, "other")):
            with pytest.raises(PackageError):
                install({"phone-1": {name: NewVersion(data)}})
        assert not list((folder / "data" / "packages").glob("*")) or install({}) == {}
        assert install({"phone-1": {"visits": NewVersion(good)}}) == {}
        gates.release("first")
        assert gates.await_reached("second", WAIT_S)
        # a version of the layout before the kept one: nothing to go back to
        third = package(folder / "three", "visits", SECOND, layout=3)
        assert install({"phone-1": {"visits": NewVersion(third)}}) == {}
        gates.release("second")
        assert gates.await_reached("third", WAIT_S)
        refused = install({"phone-1": {"visits": "definition"}})
        assert "stateVersion" in refused["phone-1"]
    versions = [v for v, _ in features(folder)["phone-1", "visits"]]
    assert versions == ["1"] * 2 + ["v2"] * 7
