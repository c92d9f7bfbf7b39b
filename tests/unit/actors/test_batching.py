from walle_stream.actors.batching import FIRST_EVENTS, LEAST_EVENTS, BatchSizer


def settle(sizer: BatchSizer, cost_ms: float, turns: int = 30) -> int:
    for _ in range(turns):
        sizer.add(sizer.events, sizer.events * cost_ms)
    return sizer.events


def test_a_quick_task_gets_the_largest_batches_soon():
    sizer = BatchSizer(500, 2_000)
    assert sizer.events == FIRST_EVENTS
    assert settle(sizer, 0.03, turns=3) == 2_000


def test_a_slow_task_gets_what_fits_into_the_target():
    assert 90 <= settle(BatchSizer(500, 2_000), 5.0) <= 100
    assert settle(BatchSizer(1, 2_000), 5.0) == LEAST_EVENTS


def test_a_task_that_changes_its_speed_is_followed_both_ways():
    sizer = BatchSizer(100, 2_000)
    assert settle(sizer, 1.0) <= 101
    assert settle(sizer, 0.01) == 2_000
    assert settle(sizer, 10.0) <= 11


def test_one_slow_turn_does_not_stop_the_rest():
    sizer = BatchSizer(500, 2_000)
    settle(sizer, 0.03)
    sizer.add(2_000, 2_500.0)
    assert sizer.events > 1_000


def test_the_bounds_hold():
    assert BatchSizer(500, 3).events == 3
    assert settle(BatchSizer(500, 3), 1_000.0) == 3
    sizer = BatchSizer(500, 2_000)
    sizer.add(0, 1_000.0)
    assert sizer.events == FIRST_EVENTS
    sizer.add(10, 0.0)
    assert sizer.events == FIRST_EVENTS
