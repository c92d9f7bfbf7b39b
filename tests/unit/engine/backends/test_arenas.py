"""Plans of a model share memory: one arena for each run at a time."""

import gc
from threading import Barrier, Thread

import numpy as np

from walle_stream.engine.backends.running import Arenas


class Plan:
    def __init__(self, nbytes):
        self.nbytes = nbytes


def made():
    sizes = []

    def allocate(nbytes):
        sizes.append(nbytes)
        return np.empty(nbytes, np.uint8)

    return Arenas(allocate), sizes


def test_plans_share_the_largest_memory():
    arenas, sizes = made()
    small, large = Plan(10), Plan(30)
    for plan in (small, large, small, large, Plan(20)):
        with arenas.lent(plan) as arena:
            assert arena.nbytes >= plan.nbytes
            arena.instances[plan] = object()
    assert sizes == [10, 30]


def test_a_plan_is_bound_again_after_its_arena_grew():
    arenas, _ = made()
    small, large = Plan(10), Plan(30)
    with arenas.lent(small) as arena:
        arena.instances[small] = "bound"
    with arenas.lent(large) as arena:
        assert small not in arena.instances
    with arenas.lent(small) as again:
        assert again is arena


def test_runs_at_the_same_time_have_arenas_of_their_own():
    arenas, sizes = made()
    plan, together, seen = Plan(10), Barrier(3), []

    def run():
        with arenas.lent(plan) as arena:
            seen.append(arena)
            together.wait(10)

    threads = [Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(arena) for arena in seen}) == 3
    assert sizes == [10] * 3


def test_an_arena_forgets_a_plan_that_is_dropped():
    arenas, _ = made()
    plan = Plan(10)
    with arenas.lent(plan) as arena:
        arena.instances[plan] = object()
    del plan
    gc.collect()
    assert not arena.instances
