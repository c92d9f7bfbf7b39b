"""Windows are folded in once, in any parts."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.deploy.release.groups import group, window
from walle_deploy.model.health import LEVELS, GroupWindow, ReleaseHealth
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory, look

GATES = Gates()


@st.composite
def windows(draw):
    """Of one group: some numbers, and counts by level."""
    made = []
    for number in sorted(draw(st.sets(st.integers(0, 20)))):
        counts = []
        for _ in range(2):
            at_risk = draw(st.tuples(*[st.integers(0, 30)] * len(LEVELS)))
            counts += [at_risk, tuple(draw(st.integers(0, each)) for each in at_risk)]
        made.append(GroupWindow(number, *counts))
    return made


def health(new, control, after=-1, until=99):
    new, control = (
        [each for each in some if after < each.number <= until] for some in (new, control)
    )
    return ReleaseHealth(new=group("v2", new), control=group("v1", control))


@given(windows(), windows(), st.lists(st.integers(-1, 21), max_size=4))
def test_windows_are_folded_once_in_any_parts_and_whoever_brings_them_again(new, control, stops):
    whole = look(Memory(), GATES, health(new, control), 1, control_percent=50.0)
    parts = Memory()
    for stop in [*sorted(stops), 99]:
        # some are brought again
        parts = look(
            parts, GATES, health(new, control, parts.window - 3, stop), 1, control_percent=50.0
        )
    assert (parts.window, parts.failures.at_risk) == (whole.window, whole.failures.at_risk)
    for gate in ("failures", "crashes"):
        found, wanted = getattr(parts, gate), getattr(whole, gate)
        assert found.reached == wanted.reached
        for mine, others in zip(found.logs, wanted.logs, strict=True):
            assert all(abs(a - b) < 1e-6 for a, b in zip(mine, others, strict=True))


def test_what_was_seen_holds_no_windows():
    seen = look(Memory(), GATES, health([window(3, 5, 1)], [window(3, 9)]), 1, control_percent=50.0)
    assert (seen.window, seen.failures.at_risk, seen.failures.reached) == (3, (5, 9), (1, 0))
    assert (seen.health.new.windows, seen.health.control.windows) == ((), ())


def test_a_step_without_a_control_group_adds_nothing_to_drift():
    values = {"devices": 40, "latency_us": {900: 40}, "output_bytes": {9: 40}}
    fast = {"devices": 40, "latency_us": {500: 40}, "output_bytes": {9: 40}}
    seen = ReleaseHealth(new=group("v2", **values), control=group("v1", **fast))
    for percent in (0.0, 50.0):
        memory = look(Memory(), GATES, seen, 1, control_percent=percent)
        memory = look(memory, GATES, seen, 2, control_percent=50.0)
        assert (memory.latency > 1) == (percent > 0)
