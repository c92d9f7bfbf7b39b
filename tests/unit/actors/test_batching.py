import pytest

from walle_stream.actors.batching import (
    FIRST_EVENTS,
    FIXED_SHARE,
    LEAST_EVENTS,
    BatchSizer,
    OwnTime,
)


def settle(sizer: BatchSizer, each_ms: float, turns: int = 30, fixed_ms: float = 0.0) -> int:
    for _ in range(turns):
        worked_ms = fixed_ms + sizer.events * each_ms
        sizer.add(sizer.events, worked_ms, worked_ms)
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
    sizer.add(2_000, 2_500.0, 2_500.0)
    assert sizer.events > 1_000


def test_the_bounds_hold():
    assert BatchSizer(500, 3).events == 3
    assert settle(BatchSizer(500, 3), 1_000.0) == 3
    sizer = BatchSizer(500, 2_000)
    sizer.add(0, 1_000.0, 1_000.0)
    assert sizer.events == FIRST_EVENTS
    sizer.add(10, 0.0, 0.0)
    assert sizer.events == FIRST_EVENTS


@pytest.mark.parametrize("target_ms", [1.0, 5.0, 20.0])
@pytest.mark.parametrize(("fixed_ms", "each_ms"), [(2.0, 0.02), (10.0, 0.02), (30.0, 0.3)])
def test_what_a_turn_costs_at_least_is_at_most_a_share_of_it(target_ms, fixed_ms, each_ms):
    sizer = BatchSizer(target_ms, 10_000)
    events = settle(sizer, each_ms, 100, fixed_ms)
    assert fixed_ms <= 1.2 * FIXED_SHARE * (fixed_ms + events * each_ms)
    assert fixed_ms + events * each_ms <= max(1.2 * target_ms, 2 * fixed_ms / FIXED_SHARE)


def test_batches_of_one_size_leave_the_fixed_part_its_share():
    sizer = BatchSizer(5, 10_000)
    floor = settle(sizer, 0.02, 30, 10.0)
    for _ in range(200):
        sizer.add(floor, 2 * (10.0 + floor * 0.02), 0.0)  # a slower machine
    assert 0.8 * floor <= sizer.floor <= 1.3 * floor


def test_how_long_a_turn_lasts_is_told_by_the_wall():
    sizer = BatchSizer(500, 2_000)
    assert sizer.expected_ms(100) == 0.0
    sizer.add(100, 1.0, 1_000.0)
    assert sizer.expected_ms(50) == 500.0
    assert sizer.events > 100


def test_turns_that_others_hold_up_are_stretched():
    sizer = BatchSizer(60.0, 1_000)
    assert sizer.stretch == 1.0
    for _ in range(20):
        sizer.add(100, 10.0, 40.0)
    assert sizer.stretch == pytest.approx(4.0)
    sizer.add(100, 10.0, 10_000.0)
    assert sizer.stretch == 20.0


def test_own_time_is_work_and_waits_for_events():
    clocks = {"worked": 7.0, "wall": 100.0}
    own = OwnTime(lambda: clocks["worked"], lambda: clocks["wall"])
    own.look(has_waited=True)
    assert own.ms == 0.0
    for worked, passed, has_waited, expected in (
        (3.0, 50.0, False, 3.0),  # 47 ms were others'
        (1.0, 10.0, True, 13.0),
        (5.0, 4.0, False, 17.0),  # VMs beside
    ):
        clocks["worked"] += worked
        clocks["wall"] += passed
        assert own.look(has_waited=has_waited) == (clocks["worked"], clocks["wall"])
        assert own.ms == expected
