from hypothesis import given
from hypothesis import strategies as st

from walle_deploy.identity.budgets import Budget

AMOUNTS = st.tuples(st.integers(0, 2_000), st.integers(1, 50))


def test_what_is_at_once_then_what_flows():
    budget = Budget(per_s=2, burst_s=5, remembered=10)
    taken = 0
    while not (wait_s := budget.try_spend("a", 1, 100.0)):
        taken += 1
    assert taken == 11  # ten, and the one that goes below empty
    assert wait_s == 0.5
    assert budget.try_spend("b", 1, 100.0) == 0
    assert budget.try_spend("a", 1, 100.5) == 0


def test_what_is_known_afterwards_is_paid_afterwards():
    budget = Budget(per_s=1_000, burst_s=10, remembered=10)
    assert budget.try_spend("a", 1, 0.0) == 0
    budget.spend("a", 59_999, 0.0)  # more than all that may come at once: it comes once
    assert budget.try_spend("a", 1, 0.0) == 50
    assert budget.try_spend("a", 1, 50.0) == 0


def test_no_bound_remembers_nobody():
    budget = Budget(per_s=0, burst_s=1, remembered=10)
    budget.spend("a", 10**9, 0.0)
    assert (budget.try_spend("a", 1, 0.0), len(budget)) == (0, 0)


def test_ten_thousand_names_take_the_room_of_those_that_are_remembered():
    budget = Budget(per_s=1, burst_s=1, remembered=1_000)
    for number in range(10_000):
        budget.try_spend(f"2001:db8:0:{number:x}::/64", 2, 0.0)
        budget.spend("busy", 2, 0.0)
    assert len(budget) == 1_000
    # who goes on is not forgotten by what others make up
    assert budget.try_spend("busy", 1, 0.0) > 10_000


@given(st.lists(AMOUNTS), st.integers(1, 20), st.integers(1, 20))
def test_never_more_than_a_bucket_that_fills(steps, per_s, burst_s):
    budget = Budget(per_s, burst_s, 10)
    level, before, now = float(per_s * burst_s), 0.0, 0.0
    for pause_ms, amount in steps:
        now += pause_ms / 1_000
        level, before = min(level + (now - before) * per_s, per_s * burst_s), now
        wait = budget.try_spend("a", amount, now)
        assert abs(wait - max(-level, 0) / per_s) < 1e-6
        level -= 0 if wait else amount
