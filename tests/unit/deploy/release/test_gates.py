"""What the gates promise, by simulation: seeded, looking after every device that matters."""

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest

from walle_deploy.model.health import GAMMA, VersionHealth
from walle_deploy.release.evidence import SHARES_BETS, Counts, exceeds
from walle_deploy.release.gates import judge
from walle_deploy.release.limits import Gates, LatencyGate, OutputGate
from walle_stream.wire.reports import timed_bucket

GATES = Gates()
STEPS = (0.01, 0.05, 0.2, 0.5, 1.0)
FLEET = 200


@cache
def outcome(devices, failing, old_devices, old_failing, crashing=0):
    new = VersionHealth(
        task="t", version="v2", devices=devices, failing_devices=failing, crashing_devices=crashing
    )
    old = VersionHealth(task="t", version="v1", devices=old_devices, failing_devices=old_failing)
    return judge(GATES, new, old if old_devices else None).outcome


def stopped_at(fails, old_failing, fleet=FLEET, *, is_crash=False):
    """Return at which share of the fleet a release is stopped; None for never.

    Evidence only grows with a device that fails: looking after these is looking after all.
    """
    for failing, number in enumerate(np.flatnonzero(fails) + 1, 1):
        crashing = failing if is_crash else 0
        if outcome(int(number), failing, fleet, old_failing, crashing) == "stop":
            return next(step for step in STEPS if number <= max(1, round(fleet * step)))
    return None


def stops(rng, runs, share, old_share, fleet=FLEET, **options):
    found = [
        stopped_at(rng.random(fleet) < share, int(rng.binomial(fleet, old_share)), fleet, **options)
        for _ in range(runs)
    ]
    return sum(each is not None for each in found) / runs


def test_a_version_that_keeps_what_is_tolerated_is_hardly_ever_stopped():
    """The null hypothesis at its edge, over 5,000 devices, previous version faultless."""
    rng = np.random.default_rng(1)
    assert stops(rng, 400, 0.001, 0.0, 5_000) <= GATES.error_rate


@pytest.mark.parametrize("share", [0.005, 0.01, 0.02, 0.05])
def test_a_version_as_bad_as_the_one_before_is_seldom_stopped(share):
    """Worse than tolerated, but no worse than what is there: measured, not proven."""
    rng = np.random.default_rng(2)
    assert stops(rng, 600, share, share) <= 0.07


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_version_that_fails_on_2_percent_of_200_devices_is_stopped_at_a_gray_step(is_crash):
    """On 4 devices, whichever; the one before fails on none."""
    rng = np.random.default_rng(3)
    fails = np.zeros(FLEET, bool)
    fails[:4] = True
    found = [stopped_at(rng.permutation(fails), 0, is_crash=is_crash) for _ in range(300)]
    assert found.count(None) <= 0.05 * 300
    assert sum(each is not None and each < 1 for each in found) >= 0.4 * 300


def test_more_devices_or_more_failures_are_stopped_earlier():
    rng = np.random.default_rng(4)
    fails = [rng.permutation(np.arange(1_000) < 20) for _ in range(100)]
    assert sum((stopped_at(each, 0, 1_000) or 2) <= 0.5 for each in fails) >= 98
    assert stops(rng, 100, 0.1, 0.0) == 1
    assert outcome(2, 2, FLEET, 0) == "stop"
    assert outcome(2, 2, 0, 0) == "stop"


def test_a_tenth_of_the_devices_may_be_silent_about_the_version_before():
    assert outcome(FLEET, 4, 180, 0) == "stop"
    assert outcome(FLEET, 4, 60, 0) != "stop"


def test_a_previous_version_that_fails_as_much_excuses_the_new_one():
    assert outcome(100, 10, 200, 0) == "stop"
    assert outcome(100, 10, 200, 20) != "stop"
    assert outcome(100, 40, 200, 20) == "stop"


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
        if judge(GATES, new, old).outcome == "stop":
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
    new = VersionHealth(task="t", version="v2")
    assert judge(GATES, new, None).outcome == "wait"
    with_devices = VersionHealth(task="t", version="v2", devices=3)
    assert judge(GATES, with_devices, None).outcome == "go"
    found = judge(GATES, with_devices, VersionHealth(task="t", version="v1", devices=3))
    assert [each.outcome for each in found.verdicts] == ["go", "go", "wait", "wait"]


def test_gates_that_are_off_are_not_looked_at():
    gates = Gates(
        latency=LatencyGate(tolerated=2.0, enabled=False),
        output=OutputGate(tolerated=2.0, enabled=False),
    )
    new = VersionHealth(task="t", version="v2", devices=9, failing_devices=9)
    found = judge(gates, new, VersionHealth(task="t", version="v1", devices=50))
    assert [each.gate for each in found.verdicts] == ["failures", "crashes"]
    assert found.why == "failures: 9 of 9 devices of v2, 0 of 50 devices of v1, tolerated 0.10%"


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
        found.append(judge(gates, new, old).verdicts[2].outcome)
    assert found == ["go"] * 5 + ["stop"]


def test_calls_that_cannot_be_compared_hold_nothing_up():
    rng = np.random.default_rng(10)
    old = VersionHealth(task="t", version="v1", devices=200, latency_us=called(rng, 90, 64, 9.0))
    new = VersionHealth(task="t", version="v2", devices=2, latency_us=called(rng, 9, 1, 9.0))
    found = judge(GATES, new, old)
    assert found.verdicts[2].outcome == "go"
    assert "no calls as large" in found.verdicts[2].text


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
        outcomes[scale, judge(gates, new, old).verdicts[2].outcome] += 1
    assert outcomes == {(1.0, "go"): 30, (slower, "stop"): 5}


def test_runs_of_less_than_the_floor_are_alike():
    rng = np.random.default_rng(11)
    old = VersionHealth(task="t", version="v1", devices=200, latency_us=called(rng, 400, 1, 20.0))
    slow = called(rng, 400, 1, 20.0, scale=8.0)  # half a millisecond
    new = VersionHealth(task="t", version="v2", devices=200, latency_us=slow)
    assert judge(GATES, new, old).verdicts[2].evidence == 0
    exact = Gates(latency=LatencyGate(tolerated=1.1, floor="0ms"))
    assert judge(exact, new, old).verdicts[2].outcome == "stop"
