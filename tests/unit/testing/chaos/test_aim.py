from collections import Counter

from walle_stream.testing.chaos.aim import next_shot
from walle_stream.testing.chaos.plan import ChaosPlan, PartPlan
from walle_stream.testing.chaos.targets import Role

PLAN = ChaosPlan(pipeline="ipv", parts=(PartPlan("local", 5),), max_visits=9)
RUN = Role("run", ends_run=True, points=("vm.before", "close.before"))
VM = Role("vm", ends_run=False, weight=0.5)


def shots(count=400, *, roles=(RUN, VM), is_at_start=True, plan=PLAN):
    return [next_shot(plan, number, roles, is_at_start=is_at_start) for number in range(count)]


def test_the_same_seed_draws_the_same_shots_and_another_others():
    assert shots() == shots()
    other = ChaosPlan(pipeline="ipv", parts=PLAN.parts, seed=2)
    assert shots(plan=other) != shots()


def test_half_of_the_runs_are_armed_at_points_of_a_role_that_has_some():
    armed = [shot for shot in shots() if shot.point]
    assert 150 < len(armed) < 250
    assert {shot.role for shot in armed} == {"run"}
    assert {shot.point for shot in armed} == set(RUN.points)
    assert all(1 <= shot.visit <= 9 for shot in armed)
    assert {shot.visit for shot in armed if shot.point == "close.before"} == {1}


def test_behind_the_start_all_moments_are_random():
    drawn = shots(is_at_start=False)
    assert not any(shot.point for shot in drawn)
    assert all(shot.delay_s > 0 for shot in drawn)
    counts = Counter(shot.role for shot in drawn)
    assert counts["run"] > counts["vm"] > 50


def test_where_nobody_has_points_all_moments_are_random():
    assert not any(shot.point for shot in shots(roles=(VM,)))
