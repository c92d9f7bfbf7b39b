"""What the gates promise, by simulation: seeded, looking after every device that matters."""

import math
from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from tests.unit.deploy.release.groups import both
from walle_deploy.model.health import GAMMA, GroupHealth, ReleaseHealth, VersionHealth
from walle_deploy.release.evidence import SHARES_BETS, Counts, exceeds
from walle_deploy.release.gates import judge
from walle_deploy.release.limits import Gates, LatencyGate, OutputGate
from walle_deploy.release.memory import Memory, look
from walle_stream.wire.buckets import timed_bucket

GATES = Gates()
FLEET = 200
SHARES = (0.01, 0.05, 0.2, 0.5, 0.99)


def judged(new, old, gates=GATES):
    return judge(
        gates,
        look(Memory(), gates, both(new, old), 1, control_percent=0.0 if old is None else 50.0),
    )


def drifted(new, old, gates=GATES):
    """Judge values of runs of both groups in one step."""
    health = ReleaseHealth(
        new=GroupHealth(release=new, step=new), control=GroupHealth(release=old, step=old)
    )
    return judge(gates, look(Memory(), gates, health, 1, control_percent=50.0))


def stopped_at(rng, bad, usual, kind="failing_devices", fleet=FLEET):
    """Return at which share a release is stopped, each device having its run once; None: never.

    Args:
        bad: Whether the new version fails on each device.
        usual: The same of the one before.
    """
    memory, place = Memory(), rng.permutation(fleet)
    failed = usual & (place >= 0)
    before = ({}, {})
    for number, share in enumerate(SHARES, 1):
        is_new = place < share * fleet
        now = tuple(
            {"devices": int(own.sum()), kind: int((fails & own).sum())}
            for own, fails in ((is_new, bad), (~is_new, failed))
        )
        memory = look(memory, GATES, both(*now, number, before), number, control_percent=50.0)
        before = now
        if judge(GATES, memory).outcome == "stop":
            return share
    return None


@pytest.mark.parametrize("kind", ["failing_devices", "crashing_devices"])
def test_a_version_that_fails_on_5_percent_of_200_devices_is_stopped(kind):
    rng, bad = np.random.default_rng(3), np.arange(FLEET) < 10
    found = [stopped_at(rng, bad, np.zeros(FLEET, bool), kind) for _ in range(100)]
    assert found.count(None) <= 5
    assert sum(each is not None and each < 0.9 for each in found) >= 80


def test_more_devices_or_more_failures_are_stopped_earlier():
    rng, none = np.random.default_rng(4), np.zeros(1_000, bool)
    found = [stopped_at(rng, np.arange(1_000) < 20, none, fleet=1_000) for _ in range(50)]
    assert sum((each or 1) <= 0.2 for each in found) >= 20
    assert sum((each or 1) <= 0.5 for each in found) == 50
    assert judged({"devices": 2, "failing_devices": 2}, {"devices": 198}).outcome == "stop"


def test_a_version_that_fails_on_few_of_very_many_is_let_through():
    """No more than tolerated, though the control group shows that it is new."""
    failing = {"devices": 50_000, "failing_devices": 50}
    found = judged(failing, {"devices": 50_000}).verdicts[0]
    assert found.outcome == "go"
    assert found.beyond_control >= 1 > found.beyond_tolerated


def test_a_version_that_fails_as_the_one_before_is_let_through():
    """More than tolerated: the control group shows that it is nothing new."""
    failing = {"devices": 500, "failing_devices": 50}
    found = judged(failing, {"devices": 9_500, "failing_devices": 950}).verdicts[0]
    assert found.outcome == "go"
    assert found.beyond_tolerated >= 1 > found.beyond_control


def test_a_control_group_that_keeps_what_is_tolerated_asks_for_less_evidence():
    """Else one that is like it would keep that, too, and the first test bears on it."""
    new = {"devices": 100, "failing_devices": 4}
    found = [judged(new, {"devices": 100, "failing_devices": each}) for each in (0, 1)]
    assert [each.outcome for each in found] == ["stop", "go"]


def test_a_group_of_few_that_holds_no_device_is_none():
    """A hold-out of 1 % of 20 devices; where more are expected they are late, and awaited."""
    new, gates = {"devices": 20, "failing_devices": 9}, GATES
    for percent, outcome in ((1.0, "stop"), (50.0, "wait")):
        memory = look(Memory(), gates, both(new, {}), 1, control_percent=percent)
        assert judge(gates, memory).outcome == outcome


def test_without_a_control_group_what_is_tolerated_decides_alone():
    found = judged({"devices": 9, "failing_devices": 6}, None)
    assert (found.outcome, len(found.verdicts)) == ("stop", 2)
    assert found.verdicts[0].beyond_control is None
    assert found.why == "failures: 6 of 9 devices of v2, no control group, tolerated 0.10%"


def test_what_would_decide_decides():
    one = {"devices": 100, "failing_devices": 1, "runs": 900, "failures": 30}
    found = judged(one, {"devices": 900}).verdicts[0]
    assert (found.outcome, found.new.affected, found.control.devices) == ("go", 1, 900)
    # further windows have as many devices at risk
    for more, outcome in ((found.decides - 1, "go"), (found.decides, "stop")):
        memory = look(Memory(), GATES, both(one, {"devices": 900}), 1, control_percent=50.0)
        now = {"devices": 100, "failing_devices": 1 + more}, {"devices": 900}
        health = both(*now, 2, (one, {}))
        assert judge(GATES, look(memory, GATES, health, 1, control_percent=50.0)).outcome == outcome
    assert judged({"devices": 1}, {"devices": 1}).verdicts[0].decides is None


def test_failures_that_come_late_make_nobody_stop_more_often():
    """A device counts as sound until it fails: what is looked at too early is only milder."""
    counts = [exceeds(Counts(each, 100), 0.001, SHARES_BETS) for each in range(20)]
    assert counts == sorted(counts)


def test_evidence_is_a_fair_game():
    """Under the null hypothesis the money's mean stays at 1 or below."""
    for share in (0.001, 0.01, 0.2):
        made = [exceeds(Counts(each, 40), share, SHARES_BETS) for each in range(41)]
        chances = [math.comb(40, k) * share**k * (1 - share) ** (40 - k) for k in range(41)]
        assert sum(c * math.exp(m) for c, m in zip(chances, made, strict=True)) <= 1 + 1e-9


def health(version, values, outputs=None):
    """Values of the runs of devices, ``(devices, runs)``."""

    def buckets(each):
        found = np.ceil(np.log(each) / math.log(GAMMA)).astype(int).ravel()
        return Counter(found.tolist())

    made = np.full(values.shape, 100.0) if outputs is None else outputs
    return VersionHealth(
        task="t",
        version=version,
        devices=len(values),
        latency_us=buckets(values),
        output_bytes=buckets(made),
    )


def drifts(rng, slower=1.0, larger=1.0, fleet=FLEET, spread=0.3):
    """Return after how many devices drift of the runs stops a release; None for never."""
    own = np.exp(rng.normal(0, spread, (fleet, 1)))  # runs of a device are alike
    noise = np.exp(rng.normal(0, spread, (4, fleet, 10)))
    old = health("v1", 10_000 * own * noise[0], 400 * own * noise[1])
    for devices in (2, 10, 40, 100, fleet):
        new = health(
            "v2",
            slower * 10_000 * (own * noise[2])[:devices],
            larger * 400 * (own * noise[3])[:devices],
        )
        if drifted(new, old).outcome == "stop":
            return devices
    return None


def test_drift_within_what_is_tolerated_stops_nothing():
    rng = np.random.default_rng(5)
    assert [drifts(rng, slower=1.1, larger=1.9) for _ in range(40)].count(None) >= 38


def test_runs_half_as_slow_again_are_stopped():
    rng = np.random.default_rng(6)
    found = [drifts(rng, slower=1.5) for _ in range(30)]
    assert found.count(None) == 0
    assert sum(each <= 100 for each in found) >= 20


@pytest.mark.parametrize("larger", [4.0, 0.25])
def test_output_that_is_four_times_as_large_or_small_is_stopped_at_half_the_fleet(larger):
    rng = np.random.default_rng(7)
    assert all((drifts(rng, larger=larger) or FLEET) <= 100 for _ in range(30))


def test_a_version_that_emits_nothing_any_more_is_stopped_soon():
    rng = np.random.default_rng(8)
    assert drifts(rng, larger=1 / 400) <= 40


def test_nothing_is_said_without_data():
    assert judge(GATES, Memory()).outcome == "wait"
    assert judged({}, {"devices": 9}).outcome == "wait"
    found = judged({"devices": 3}, {})
    assert [each.outcome for each in found.verdicts] == ["go"] * 4
    assert "no runs to compare yet" in found.verdicts[2].text


def test_gates_that_are_off_are_not_looked_at():
    gates = Gates(
        latency=LatencyGate(tolerated=2.0, enabled=False),
        output=OutputGate(tolerated=2.0, enabled=False),
    )
    found = judged({"devices": 9, "failing_devices": 9}, {"devices": 50}, gates)
    assert [each.gate for each in found.verdicts] == ["failures", "crashes"]
    assert found.why == (
        "failures: 9 of 9 devices of v2, 0 of 50 devices of v1 beside, tolerated 0.10%"
    )


@pytest.mark.parametrize("gate", ["latency", "output"])
def test_drift_shows_both_groups_and_what_would_decide_decides(gate):
    field = {"latency": "latency_us", "output": "output_bytes"}[gate]

    def verdict(slow):
        new = VersionHealth(
            task="t",
            version="v2",
            devices=100 + slow,
            device_minutes=400,
            **{field: {500: 100, 900: slow}},
        )
        old = VersionHealth(task="t", version="v1", devices=200, **{field: {500: 200}})
        return next(each for each in drifted(new, old).verdicts if each.gate == gate)

    found = verdict(3)
    assert (found.new.devices, found.new.device_minutes, found.control.devices) == (103, 400, 200)
    above = next(each for each in found.shifts if each.what == "above p50")
    assert above.new.value == pytest.approx(3 / 103)
    assert above.new.low < above.new.value < above.new.high
    assert above.control.value == 0
    assert found.would_decide.startswith(f"{found.decides} more ")
    for more, outcome in ((found.decides - 1, "go"), (found.decides, "stop")):
        assert verdict(3 + more).outcome == outcome
    lone = {"devices": 1, field: {500: 1}}
    [found] = [each for each in judged(lone, lone).verdicts if each.gate == gate]
    assert (found.decides, found.would_decide[:11]) == (None, "nothing now")


def test_evidence_of_drift_is_kept_from_step_to_step():
    """Each step has its own comparison, as the groups change their sizes from one to the next."""
    rng = np.random.default_rng(13)
    memory, found = Memory(), []
    for step in range(1, 6):
        own = np.exp(rng.normal(0, 0.3, (40, 1)))
        old = health("v1", 10_000 * own * np.exp(rng.normal(0, 0.3, (40, 10))))
        new = health("v2", 16_000 * own * np.exp(rng.normal(0, 0.3, (40, 10))))
        groups = [GroupHealth(release=each, step=each) for each in (new, old)]
        seen = ReleaseHealth(new=groups[0], control=groups[1])
        for _ in range(3):
            memory = look(memory, GATES, seen, step, control_percent=50.0)
        alone = drifted(new, old).verdicts[2].evidence
        found.append((judge(GATES, memory).verdicts[2].evidence, alone))
    assert max(alone for _, alone in found) < 1 < found[-1][0]
    assert found[-1][0] == pytest.approx(sum(alone for _, alone in found), abs=0.01)


def called(rng, calls, size, run_us, call_us=40.0, scale=1.0):
    """Times of the runs of calls of some size: a call costs something, and its runs."""
    noise = np.exp(rng.normal(0, 0.2, calls))
    found = Counter()
    for each in noise:
        found[timed_bucket(scale * each * (call_us + size * run_us), size)] += size
    return found


def test_a_version_with_small_calls_is_not_slower_for_that():
    """Few devices have it, so few of its runs share a call; the previous one has all sizes."""
    rng = np.random.default_rng(9)
    gates = Gates(latency=LatencyGate(tolerated=1.1, floor="0ms"))
    usual = called(rng, 3_000, 64, 20.0) + called(rng, 60, 1, 20.0) + called(rng, 60, 2, 20.0)
    old = VersionHealth(task="t", version="v1", devices=200, latency_us=usual)
    found = []
    for slower in (1.0, 1.0, 1.0, 1.0, 1.0, 2.5):
        small = called(rng, 80, 1, slower * 20.0, slower * 40.0)
        new = VersionHealth(task="t", version="v2", devices=80, latency_us=small)
        found.append(drifted(new, old, gates).verdicts[2].outcome)
    assert found == ["go"] * 5 + ["stop"]


def test_calls_that_cannot_be_compared_hold_nothing_up():
    rng = np.random.default_rng(10)
    old = VersionHealth(task="t", version="v1", devices=200, latency_us=called(rng, 90, 64, 9.0))
    new = VersionHealth(task="t", version="v2", devices=2, latency_us=called(rng, 9, 1, 9.0))
    found = drifted(new, old)
    assert found.verdicts[2].outcome == "go"
    assert "no call sizes in common" in found.verdicts[2].text


@pytest.mark.parametrize(("mine", "usual", "slower"), [(64, 3, 4.0), (2, 64, 500.0)])
def test_a_much_slower_version_is_stopped_also_where_no_calls_are_alike(mine, usual, slower):
    rng = np.random.default_rng(12)
    gates = Gates(latency=LatencyGate(tolerated=1.1, floor="0ms"))
    outcomes = Counter()
    for scale in [1.0] * 30 + [slower] * 5:
        times = called(rng, 100, usual, 20.0)
        old = VersionHealth(task="t", version="v1", devices=200, latency_us=times)
        times = called(rng, 100, mine, 20.0, scale=scale)
        new = VersionHealth(task="t", version="v2", devices=100, latency_us=times)
        outcomes[scale, drifted(new, old, gates).verdicts[2].outcome] += 1
    assert outcomes == {(1.0, "go"): 30, (slower, "stop"): 5}


def test_runs_of_less_than_the_floor_are_alike():
    rng = np.random.default_rng(11)
    old = VersionHealth(task="t", version="v1", devices=200, latency_us=called(rng, 400, 1, 20.0))
    slow = called(rng, 400, 1, 20.0, scale=8.0)  # half a millisecond
    new = VersionHealth(task="t", version="v2", devices=200, latency_us=slow)
    assert drifted(new, old).verdicts[2].evidence == 0
    exact = Gates(latency=LatencyGate(tolerated=1.1, floor="0ms"))
    assert drifted(new, old, exact).verdicts[2].outcome == "stop"


def test_exposure_is_how_many_minutes_each_device_ran_in_this_step():
    assert judged({"devices": 4, "device_minutes": 6}, {"devices": 9}).exposure == 1.5
    assert judged({}, {"devices": 9, "device_minutes": 6}).exposure == 0


def test_a_step_of_which_nobody_reports_waits_whatever_the_steps_before_saw():
    """No reports are no evidence, of either group."""
    seen = both({"devices": 23}, {"devices": 77})
    nobody = VersionHealth(task="t", version="v")
    for group, silent in (("new", "v2"), ("control", "v1")):
        now = replace(seen, **{group: replace(getattr(seen, group), step=nobody)})
        found = judge(GATES, look(Memory(), GATES, now, 2, control_percent=50.0))
        assert (found.outcome, [each.version for each in found.silent]) == ("wait", [silent])
    assert judged({"devices": 23}, {"devices": 77}).silent == ()


@pytest.mark.parametrize(
    ("percent", "seen", "step", "silent"),
    [
        # of all that reported before, a tenth of each group's share has to
        (1, (20, 1_980), (2, 1), {"control"}),
        (5, (15, 1_980), (1, 1_000), {"new"}),
        (20, (60, 1_980), (1, 1), {"new", "control"}),
        (20, (60, 1_980), (39, 159), {"new"}),
        (20, (60, 1_980), (40, 159), set()),
        (99, (1_977, 1_900), (197, 2), set()),
        (99, (1_977, 1_900), (195, 2), {"new"}),
        (99, (1_977, 1_900), (1_000, 1), {"control"}),
        (50, (2, 2_000), (2, 2_000), {"new"}),
        # devices that have moved since the step began are in both
        (99, (9_900, 9_900), (9_900, 4_950), set()),
        # of few devices nothing is expected
        (1, (1, 8), (1, 8), set()),
        (99, (300, 0), (300, 0), set()),
        (1, (3, 0), (3, 0), {"control"}),
        (1e-300, (0, 0), (0, 9), {"new"}),
        (0, (0, 9), (0, 9), {"new"}),
        # without a control group, such as in a beta
        (100, (100, 0), (9, 0), {"new"}),
        (100, (100, 0), (10, 0), set()),
    ],
)
def test_a_step_waits_while_far_fewer_devices_report_than_their_share(percent, seen, step, silent):
    health = ReleaseHealth(
        **{
            name: GroupHealth(
                release=VersionHealth(task="t", version=name, devices=known),
                step=VersionHealth(task="t", version=name, devices=now),
            )
            for name, known, now in zip(("new", "control"), seen, step, strict=True)
        }
    )
    found = judge(GATES, look(Memory(), GATES, health, 1, control_percent=100.0 - percent))
    assert {each.version for each in found.silent} == silent
    assert found.outcome == ("wait" if silent else "go")
