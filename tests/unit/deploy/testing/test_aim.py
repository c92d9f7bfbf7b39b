"""Shots of the release platform's campaign."""

from walle_deploy.testing.chaos.aim import POINTS, next_shot
from walle_deploy.testing.chaos.plan import WorldPlan
from walle_stream.faults import CRASH_POINTS, PLATFORM_POINTS

SHOTS = [next_shot(WorldPlan(seed=1), number) for number in range(1_000)]


def test_a_shot_follows_from_the_seed_and_its_number():
    assert [next_shot(WorldPlan(seed=1), number) for number in range(20)] == SHOTS[:20]
    assert next_shot(WorldPlan(seed=2), 0) != SHOTS[0]


def test_every_role_is_hit_at_random_moments_and_at_each_of_its_points():
    assert {each.role for each in SHOTS if not each.crash} == POINTS.keys()
    for role, points in POINTS.items():
        aimed = {each.crash.partition(":")[0] for each in SHOTS if each.role == role}
        assert aimed - {""} == set(points)


def test_every_point_of_the_platform_is_aimed_at():
    aimed = {point for points in POINTS.values() for point in points}
    assert set(PLATFORM_POINTS) <= aimed <= {*PLATFORM_POINTS, *CRASH_POINTS}
