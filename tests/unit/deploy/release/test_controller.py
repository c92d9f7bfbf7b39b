import threading

import pytest

from tests.unit.deploy.monitoring.reporting import Clocked
from tests.unit.deploy.release.groups import both, group
from walle_deploy.model.health import GroupHealth, ReleaseHealth, VersionHealth
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.commands import ReleaseCommands, read_state
from walle_deploy.release.controller import BEHIND_MS, Controller
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory, look
from walle_deploy.release.ports import SimulationResult
from walle_deploy.release.progress import describe
from walle_deploy.release.stored_health import put_memory, read_memory
from walle_stream.errors import (
    ConflictError,
    GitError,
    IntegrityError,
    ReleaseStateError,
    ServiceUnreachableError,
)

SIMULATION = {"kinds": "kinds.yaml", "events": "e.jsonl"}
GOOD = {"devices": 5}


class FakeSimulator:
    """Answers, or raises, one after the other, when ``let_go`` is set."""

    def __init__(self, *answers):
        self.answers, self.asked, self.let_go = list(answers), [], threading.Event()
        self.let_go.set()

    def simulate(self, files, previous, step, stop):
        self.asked.append((files, previous, step))
        while not self.let_go.wait(0.01):
            if stop.is_set():
                raise ReleaseStateError("stopped")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def controller(store, health):
    made = []

    def make(*answers, lease_ms=600_000):
        controller = Controller(store, health, FakeSimulator(*answers), lease_ms)
        made.append(controller)
        return controller

    yield make
    for each in made:
        each._simulator.let_go.set()
        each.close()


def started(controller, name="r"):
    """Take turns until the simulation runs; return what will be its answer."""
    while name not in controller._running:
        controller.turn()
    return controller._running[name].future


def stage(store, name="r"):
    with store.reading() as reading:
        return read_state(reading.release(name)).stage


def simulate(controller):
    """Take turns until the simulation's answer is in."""
    started(controller).exception(20)
    controller.turn()


def test_a_version_that_was_retired_is_offered_no_more(controller, store, commands, release):
    file = PushedFile("shop/ipv/v9/ipv-v9.walle", "targets/9", "0" * 64, 1)
    commands.publish("shop/ipv", "v9", VersionFiles((file,)))
    commands.create(release(version="v9", beta={"devices": ["a"]}))
    retired, controller = set(), controller()
    controller.is_retired = retired.__contains__
    controller.turn()
    assert stage(store) == "beta"
    retired.add(file.target)
    controller.turn()
    assert stage(store) == "rolled_back"
    with store.reading() as reading:
        assert "was retired: no device takes it" in reading.audit("r")[-1].text


def test_a_good_version_goes_to_all_devices(controller, store, commands, release, health):
    health.of = {"v1": GOOD | {"latency_us": {1: 9}, "output_bytes": {1: 9}}}
    health.of["v2"] = health.of["v1"]
    commands.create(release(beta={"devices": ["a"]}))
    controller = controller()
    for _ in range(9):
        controller.turn()
    assert stage(store) == "done"


def test_a_release_waits_while_nobody_reports(controller, store, commands, release):
    commands.create(release())
    controller = controller()
    for _ in range(3):
        controller.turn()
    assert stage(store) == "gray"


def test_a_step_waits_while_its_devices_are_silent_and_says_so(
    controller, store, commands, release, health
):
    commands.create(release())
    controller = controller()
    controller.turn()
    before = group("v2", devices=20, last_ms=1_000).release
    silent = GroupHealth(release=before, step=VersionHealth(task="shop/ipv", version="v2"))
    seen = ReleaseHealth(new=silent, control=group("v1", devices=80, last_ms=9_000))
    health.release_health = lambda _: seen
    for _ in range(3):
        controller.turn()
    with store.reading() as reading:
        found = describe(reading, reading.release("r"))
    assert (found.stage, found.percent, found.silent) == ("gray", 1, ("v2",))
    assert found.last_reports_ms == {"v2": 1_000, "v1": 9_000}
    assert found.waits_for[0].startswith("reports of v2: hardly any device sent one in this step")
    assert "1970-01-01 00:00:01Z" in found.waits_for[0]


def test_a_failing_version_is_rolled_back_and_the_log_says_why(
    controller, store, commands, release, health
):
    commands.create(release())
    controller = controller()
    controller.turn()
    health.of = {"v1": {"devices": 200}, "v2": {"devices": 9, "failing_devices": 6}}
    controller.turn()
    assert stage(store) == "rolled_back"
    with store.reading() as reading:
        assert read_memory(reading, "r").health.new.release.failing_devices == 6
        entry = reading.audit("r")[-1].text
        assert reading.table().releases == ()
    assert '"by":"controller"' in entry
    assert "failures: 6 of 9 devices of v2, 0 of 200 devices of v1 beside" in entry


def test_a_version_that_fails_on_4_of_200_devices_is_taken_back_at_a_gray_step(
    controller, store, commands, release, health
):
    commands.create(release())
    controller, failing, shares = controller(), (17, 80, 121, 190), []
    while not shares or stage(store) == "gray":
        controller.turn()
        with store.reading() as reading:
            offers = reading.table().releases
        shares += [each.percent for each in offers]
        devices = int(2 * shares[-1])
        bad = sum(each < devices for each in failing)
        new, old = (
            {"devices": count, "latency_us": {500: count}, "output_bytes": {9: count}}
            for count in (devices, 200 - devices)
        )
        health.of = {"v1": old, "v2": new | {"failing_devices": bad}}
    assert (stage(store), shares) == ("rolled_back", [1, 5, 20, 50, 99])


def test_health_is_asked_of_both_groups_since_the_step_and_of_what_is_new(
    controller, store, commands, release, health
):
    commands.create(release(gray=[{"percent": 5, "minDuration": "1h"}]))
    controller = controller()
    controller.turn()
    health.of = {"v1": {"devices": 95}, "v2": {"devices": 5}}
    controller.turn()
    with store.reading() as reading:
        step_ms = read_state(reading.release("r")).step_ms
    commands.pause("r")
    commands.resume("r")
    controller.turn()
    asked = [(each.release_id, each.version, each.before, each.after) for each in health.asked]
    assert asked == [("r", "v2", "v1", -1), ("r", "v2", "v1", 1)]
    assert {each.step_ms for each in health.asked} == {step_ms}


def test_a_step_that_a_clock_ahead_began_begins_anew_where_the_clock_stays(
    store, commands, release, health
):
    commands.create(release())
    clocked = Clocked(store)
    leader, begun = Controller(clocked, health, FakeSimulator()), []
    for moved_ms in (0, -86_400_000, BEHIND_MS - 1, 86_400_000, -86_400_000, BEHIND_MS):
        clocked.now += moved_ms
        leader.turn()
        with store.reading() as reading:
            begun.append(read_state(reading.release("r")).step_ms)
    assert [each == clocked.now for each in begun] == [False] * 5 + [True]
    assert len({*begun}) == 2
    leader.close()


def test_a_window_that_comes_again_counts_once(controller, store, commands, release, health):
    commands.create(release(gray=[{"percent": 5, "minDuration": "1h"}]))
    first, second = controller(), controller()
    first.turn()
    health.of = {"v1": {"devices": 95}, "v2": {"devices": 5, "failing_devices": 1}}
    first.turn()
    with store.reading() as reading:
        folded = read_memory(reading, "r").failures
    assert folded.reached == (1, 0)
    with store.writing() as writing:
        assert writing.take_lease("controller", first._owner, 0)
    second.turn()
    with store.reading() as reading:
        assert read_memory(reading, "r").failures == folded


def test_a_simulation_runs_beside_the_other_releases(controller, store, commands, release):
    commands.create(release(simulation=SIMULATION))
    controller = controller(SimulationResult(passed=True, why="3 kinds"))
    controller._simulator.let_go.clear()
    for _ in range(3):
        assert controller.turn()
    assert stage(store) == "simulation"
    controller._simulator.let_go.set()
    controller._running["r"].future.result(20)
    controller.turn()
    controller.turn()
    assert stage(store) == "gray"
    with store.reading() as reading:
        stored = reading.release("r")
        files = [reading.files(stored.task, version) for version in (stored.version, "v1")]
    step = read_state(stored).release.spec.simulation
    assert controller._simulator.asked == [(*files, step)]


@pytest.mark.parametrize("end", ["by hand", "at the end", "elsewhere"])
def test_a_simulation_that_nobody_waits_for_is_stopped(controller, store, commands, release, end):
    commands.create(release(simulation=SIMULATION))
    controller = controller()
    controller._simulator.let_go.clear()
    future = started(controller)
    if end == "by hand":
        commands.roll_back("r", "no")
        controller.turn()
    elif end == "at the end":
        controller.close()
    else:
        with store.writing() as writing:
            assert writing.take_lease("controller", controller._owner, 0)
            assert writing.take_lease("controller", "another", 600_000)
        assert not controller.turn()
    assert isinstance(future.exception(20), ReleaseStateError)
    assert not controller._running


def test_the_simulation_of_the_next_release_does_not_wait_for_one_that_ended(
    controller, store, commands, release
):
    commands.create(release(simulation=SIMULATION))
    controller = controller(SimulationResult(passed=True, why=""))
    controller._simulator.let_go.clear()
    first = started(controller)
    commands.roll_back("r", "no")
    commands.create(release("next", "v3", simulation=SIMULATION))
    second = started(controller, "next")
    assert first.exception(20)
    controller._simulator.let_go.set()
    second.result(20)
    controller.turn()
    controller.turn()
    assert stage(store, "next") == "gray"


@pytest.mark.parametrize(
    "answer",
    [
        SimulationResult(passed=False, why="phone-7 fails"),
        GitError("phone-7 fails"),
        KeyError("phone-7 fails"),
    ],
)
def test_a_failed_simulation_stops_the_release(controller, store, commands, release, answer):
    commands.create(release(simulation=SIMULATION))
    simulate(controller(answer))
    assert stage(store) == "stopped"
    with store.reading() as reading:
        assert "phone-7 fails" in reading.audit("r")[-1].text


def test_a_simulation_that_could_not_run_now_is_run_again(controller, store, commands, release):
    commands.create(release(simulation=SIMULATION))
    controller = controller(ServiceUnreachableError("no"), SimulationResult(passed=True, why=""))
    simulate(controller)
    assert stage(store) == "simulation"
    simulate(controller)
    controller.turn()
    assert stage(store) == "gray"


def test_one_controller_leads_and_the_next_one_goes_on(controller, store, commands, release):
    commands.create(release(simulation=SIMULATION))
    first, second = controller(), controller(SimulationResult(passed=True, why=""))
    assert (first.turn(), second.turn()) == (True, False)
    with store.writing() as writing:  # as if it had died long ago
        assert writing.take_lease("controller", first._owner, 0)
    simulate(second)
    second.turn()
    assert stage(store) == "gray"
    assert not first.turn()


def test_one_that_lost_the_lease_changes_nothing(controller, store, commands, release, health):
    commands.create(release())
    late, other = controller(), controller()
    late.turn()
    with store.reading() as reading:
        stored, now_ms = reading.release("r"), reading.now_ms()
    with store.writing() as writing:
        assert writing.take_lease("controller", late._owner, 0)
    assert other.turn()
    health.of = {"v1": {"devices": 200}, "v2": {"devices": 9, "failing_devices": 9}}
    with pytest.raises(ConflictError, match="another release controller leads now"):
        late._take_on(stored, now_ms)
    assert stage(store) == "gray"


def test_a_health_source_that_is_away_makes_its_release_wait(
    controller, store, commands, release, health, caplog
):
    commands.create(release())
    controller = controller()
    controller.turn()

    def away(*_):
        raise ServiceUnreachableError("monitoring does not answer")

    health.release_health = away
    assert controller.turn()
    assert "release r waits: monitoring does not answer" in caplog.text


def test_what_no_one_foresaw_stops_neither_it_nor_other_releases(
    controller, store, commands, release, health, caplog
):
    commands.publish("shop/cart", "v2", VersionFiles(()))
    commands.create(release("odd"))
    commands.create(release("even", task="shop/cart"))
    whole = health.release_health

    def odd(query):
        if query.task == "shop/ipv":
            raise ZeroDivisionError
        return whole(query)

    health.release_health = odd
    health.of = {"v2": GOOD | {"latency_us": {1: 9}, "output_bytes": {1: 9}}}
    leader = controller()
    while stage(store, "even") != "done":
        assert leader.turn()
    assert "release odd waits" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    turns, stop = [], threading.Event()

    def turn():
        turns.append(0)
        if len(turns) > 1:
            stop.set()
        raise ZeroDivisionError

    leader.turn = turn
    leader.run(stop, 0.001)
    assert len(turns) == 2


def test_it_runs_until_it_is_asked_to_stop(store, commands, release, health):
    health.of = {"v1": GOOD | {"latency_us": {1: 9}, "output_bytes": {1: 9}}}
    health.of["v2"] = health.of["v1"]
    commands.create(release())
    controller, stop = Controller(store, health, FakeSimulator()), threading.Event()
    thread = threading.Thread(target=controller.run, args=(stop, 0.001))
    thread.start()
    while stage(store) != "done":
        pass
    stop.set()
    thread.join()
    controller.close()


def test_what_gates_saw_goes_by_way_of_the_store(store):
    seen = look(Memory(), Gates(), both({"devices": 3}, {"devices": 9}), 7, control_percent=50.0)
    with store.writing() as writing:
        put_memory(writing, "r", seen)
    with store.reading() as reading:
        assert read_memory(reading, "r") == seen
        assert read_memory(reading, "other") == Memory()


def test_what_is_no_memory_of_gates_is_named(store):
    with store.writing() as writing:
        writing.put_snapshot("gates", "r", b"[]")
    with store.reading() as reading, pytest.raises(IntegrityError, match="gates of 'r'"):
        read_memory(reading, "r")


def test_desks_of_two_names_are_told_apart_in_the_log(store, commands, release):
    commands.create(release())
    ReleaseCommands(store, "bob").pause("r", "look")
    with store.reading() as reading:
        texts = [each.text for each in reading.audit("r")]
    assert ['"by":"ann"' in texts[0], '"by":"bob"' in texts[1]] == [True, True]
