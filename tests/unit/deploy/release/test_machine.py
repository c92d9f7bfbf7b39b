import pytest

from tests.unit.deploy.hasty import hasty
from walle_deploy.release.events import (
    Advanced,
    Paused,
    Resumed,
    RolledBack,
    Simulated,
    Superseded,
    Tick,
)
from walle_deploy.release.machine import advance
from walle_deploy.release.state import ReleaseState, offer_of, reach_of
from walle_stream.errors import ReleaseStateError

MINUTE = 60_000


def begun(previous="v1", **spec):
    definition = {
        "apiVersion": "walle/v1",
        "kind": "Release",
        "metadata": {"name": "r"},
        "spec": hasty({"task": "shop/ipv", "version": "v2", **spec}),
    }
    return ReleaseState(definition=definition, previous=previous, created_ms=1)


def go(at_ms=10, devices=100):
    return Tick(at_ms, "go", devices, "ok")


def run(state, *events):
    """Return the state after events, each of which must change something."""
    for event in events:
        state = advance(state, event).state
    return state


GRAY = {"gray": [{"percent": 5}, {"percent": 100}]}


def test_a_release_goes_through_all_its_steps():
    state = begun(simulation={"kinds": "k", "events": "e"}, beta={"devices": ["a"]}, **GRAY)
    seen = []
    for event in (
        go(),
        Simulated(11, passed=True, why="fine"),
        go(12),
        go(13),
        go(14),
        go(15),
        go(16),
    ):
        change = advance(state, event)
        state = change.state
        seen.append((state.stage, state.percent, change.stable))
    assert seen == [
        ("simulation", 0, None),
        ("simulation", 0, None),
        ("beta", 0, None),
        ("gray", 5, None),
        ("gray", 99, None),  # the rest is held out
        ("full", 99, None),
        ("done", 100, "v2"),
    ]
    assert advance(state, go(17)) is None


def test_beta_devices_keep_the_version_in_the_gray_steps():
    state = run(begun(beta={"devices": ["a", "b"]}, **GRAY), go())
    assert (offer_of(state).stage, offer_of(state).devices) == ("beta", {"a", "b"})
    offer = offer_of(run(state, go(11)))
    assert (offer.stage, offer.percent, offer.devices) == ("gray", 5, {"a", "b"})
    assert offer_of(run(state, go(11), go(12), go(13))).devices == {"a", "b"}
    done = run(begun(beta={"devices": ["a"]}, policy={"app": "x"}), *map(go, range(11, 19)))
    assert (done.stage, offer_of(done).devices) == ("done", frozenset())


@pytest.mark.parametrize(
    ("previous", "spec", "shares"),
    [
        ("v1", {}, [5, 99, 99]),
        ("v1", {"holdOut": 10}, [5, 90, 90]),
        ("v1", {"holdOut": 0}, [5, 100, 100]),
        ("", {}, [5, 100, 100]),  # there is nothing to hold out
        ("v2", {}, [5, 100, 100]),  # of itself
    ],
)
def test_a_hold_out_keeps_the_version_before_until_the_release_is_done(previous, spec, shares):
    state, found = begun(previous, policy={"app": "x"}, **GRAY, **spec), []
    for at in (10, 11, 12):
        state = run(state, go(at))
        offer = offer_of(state)
        found.append(offer.percent)
        assert (offer.percent, offer.is_watched) == (state.percent, True)
        assert offer.before == (previous if previous != "v2" else "")
    assert found == shares
    done = offer_of(run(state, go(13)))
    assert (done.percent, done.is_watched, done.before) == (100, False, "")


@pytest.mark.parametrize("percent", [-1, 50.5, "a"])
def test_a_hold_out_is_half_of_the_devices_at_most(percent):
    with pytest.raises(ValueError, match="holdOut"):
        begun(holdOut=percent).release  # noqa: B018 - it is read there


def test_a_step_lasts_until_its_devices_ran_often_enough():
    """At night a step of ten minutes has seen nothing."""
    state = run(begun(gray=[{"percent": 5, "minExposure": 2}]), go(0))
    seldom, often = (Tick(60 * MINUTE, "go", 9, "ok", exposure) for exposure in (1.9, 2.0))
    assert advance(state, seldom) is None
    assert advance(state, often).state.stage == "full"
    # a person goes on without it
    assert advance(state, Advanced(60 * MINUTE, "go", "now")).state.stage == "full"


def test_a_step_that_a_clock_ahead_began_begins_anew():
    state = run(begun(gray=[{"percent": 5, "minDuration": "1m"}]), go(1_440 * MINUTE))
    assert advance(state, go(10)) is None
    again = run(state, Tick(10, "go", 9, "ok", is_behind=True))
    assert (again.stage, again.percent, again.since_ms, again.step_ms) == ("gray", 5, 10, 10)
    assert run(again, go(MINUTE + 10)).stage == "full"


def test_a_step_waits_for_its_time_its_devices_and_its_gates():
    state = run(begun(gray=[{"percent": 5, "minDuration": "10m", "minDevices": 3}]), go(0))
    waits = (go(10 * MINUTE - 1, 3), go(10 * MINUTE, 2), Tick(10 * MINUTE, "wait", 3))
    assert [advance(state, each) for each in waits] == [None] * 3
    assert run(state, go(10 * MINUTE, 3)).stage == "full"


def test_a_step_waits_for_its_own_schedule_in_the_one_before():
    state = run(
        begun(gray=[{"percent": 5}, {"percent": 9, "notBefore": "1970-01-01T01:00:00Z"}]), go(0)
    )
    assert advance(state, go(60 * MINUTE - 1)) is None
    assert run(state, go(60 * MINUTE)).percent == 9


def test_a_failed_simulation_stops_before_any_device():
    state = run(begun(simulation={"kinds": "k", "events": "e"}), go())
    assert advance(state, go(11)) is None
    change = advance(state, Simulated(12, passed=False, why="phone-7: KeyError"))
    assert (change.state.stage, change.action, change.stable) == ("stopped", "stop", None)
    assert offer_of(change.state) is None


def test_a_gate_rolls_back_also_while_it_is_paused():
    state = run(begun(**GRAY), go(), Paused(11, "lunch"))
    change = advance(state, Tick(12, "stop", 9, "failures: 5 of 9"))
    assert (change.state.stage, change.action, change.why) == (
        "rolled_back",
        "rollback",
        "failures: 5 of 9",
    )
    offer = offer_of(change.state)
    assert offer is not None
    assert (offer.stage, offer.version) == ("withdrawn", "v2")


def test_a_gate_may_pause_instead():
    state = run(begun(onStop="pause", **GRAY), go())
    paused = run(state, Tick(12, "stop", 9, "bad"))
    assert (paused.stage, paused.paused_ms, offer_of(paused).percent) == ("gray", 12, 5)
    assert advance(paused, Tick(13, "stop", 9, "bad")) is None


def test_a_pause_does_not_count_as_time_of_the_step():
    state = run(begun(gray=[{"percent": 5, "minDuration": "10m"}]), go(0), Paused(MINUTE))
    assert advance(state, go(30 * MINUTE)) is None
    state = run(state, Resumed(30 * MINUTE))
    assert advance(state, go(39 * MINUTE - 1)) is None
    assert run(state, go(39 * MINUTE)).stage == "full"


@pytest.mark.parametrize("previous", ["", "v1"])
@pytest.mark.parametrize("event", [RolledBack(11), Superseded(11)])
def test_what_ends_before_it_is_done_is_taken_off_the_devices_that_have_it(previous, event):
    change = advance(run(begun(previous, **GRAY), go()), event)
    assert (change.stable, offer_of(change.state).stage) == (None, "withdrawn")
    assert offer_of(advance(begun(previous), event).state) is None  # nobody had it


def test_what_is_done_can_be_rolled_back_to_what_was_before():
    state = run(begun(**GRAY), *[go(each) for each in range(10, 14)])
    change = advance(state, RolledBack(20, "no"))
    assert (state.stage, change.state.stage, change.stable) == ("done", "rolled_back", "v1")


def test_a_release_for_some_devices_stays_offered_when_it_is_done():
    state = run(begun(policy={"os": "android"}, **GRAY), *[go(each) for each in range(10, 14)])
    assert (state.stage, offer_of(state).stage, offer_of(state).policy) == (
        "done",
        "full",
        {"os": ["android"]},
    )
    assert offer_of(run(state, Superseded(20))) is None


@pytest.mark.parametrize(
    ("events", "event", "message"),
    [
        ([], Resumed(5), "is not paused"),
        ([Paused(1, "lunch")], Paused(5), "is paused already: lunch"),
        (
            [go(), RolledBack(2, "bad")],
            RolledBack(5),
            "cannot be rolled back: it is rolled back .bad.",
        ),
        ([RolledBack(2)], Paused(5), "cannot be paused: it is stopped"),
        ([RolledBack(2)], Resumed(5), "cannot be resumed"),
        ([RolledBack(2)], Superseded(5), "cannot be superseded"),
    ],
)
def test_what_cannot_be_done_is_refused_with_where_it_stands(events, event, message):
    with pytest.raises(ReleaseStateError, match=message):
        advance(run(begun(), *events), event)


def test_a_person_goes_on_whatever_the_step_waits_for():
    gray = [
        {"percent": 5, "minDuration": "1h", "minDevices": 50},
        {"percent": 100, "notBefore": "2100-01-01T00:00:00Z"},
    ]
    state = run(begun(gray=gray), go(10))
    assert advance(state, Tick(20, "wait", 0)) is None
    change = advance(state, Advanced(20, why="no device is in it"))
    assert (change.action, change.why) == ("advance", "no device is in it")
    state = change.state
    assert (state.percent, state.since_ms) == (99, 20)
    state = run(state, Advanced(21), Advanced(22))
    assert (state.stage, state.percent) == ("done", 100)


@pytest.mark.parametrize(("on_stop", "action"), [("rollback", "rollback"), ("pause", "pause")])
def test_a_gate_that_says_stop_stops_who_goes_on(on_stop, action):
    state = run(begun(onStop=on_stop, **GRAY), go(10))
    change = advance(state, Advanced(20, "stop", "failures"))
    assert (change.action, change.why) == (action, "failures")


def test_who_goes_on_is_refused_where_that_cannot_be():
    simulating = run(begun(simulation={"kinds": "k", "events": "e"}), go())
    with pytest.raises(ReleaseStateError, match="while its simulation runs"):
        advance(simulating, Advanced(20))
    simulated = run(simulating, Simulated(21, passed=True, why=""))
    assert advance(simulated, Advanced(22)).state.stage == "gray"
    with pytest.raises(ReleaseStateError, match=r"is paused \(lunch\): resume it"):
        advance(run(begun(), go(), Paused(20, "lunch")), Advanced(21))
    with pytest.raises(ReleaseStateError, match="cannot be advanced: it is stopped"):
        advance(run(begun(), RolledBack(20)), Advanced(21))


def test_the_end_has_its_time():
    state = run(begun(**GRAY), go(10), RolledBack(99))
    assert (state.stage, state.since_ms) == ("rolled_back", 99)


@pytest.mark.parametrize(
    ("spec", "stage", "reach"),
    [
        ({}, "created", "no device"),
        ({"beta": {"devices": ["a", "b"]}}, "beta", "2 named devices"),
        (GRAY, "gray", "5 % of the devices"),
        ({"policy": {"os": "x"}}, "done", "100 % of the devices that its policy admits"),
        ({}, "done", "100 % of the devices, as the stable version"),
        ({}, "rolled_back", "no device"),
    ],
)
def test_people_are_told_who_may_get_it(spec, stage, reach):
    state = begun(**spec)
    while state.stage != stage:
        event = RolledBack(10) if state.offered_ms and stage == "rolled_back" else Advanced(10)
        state = run(state, event)
    assert reach_of(state) == reach
