import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.actors.plan.latency import Latencies


@given(st.lists(st.floats(0.01, 99_000), min_size=1), st.floats(0, 1))
def test_quantiles_are_within_a_tenth_of_the_exact_ones(values, ratio):
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    exact = sorted(values)[int(ratio * (len(values) - 1))]
    assert latencies.quantile(ratio) == pytest.approx(exact, rel=0.1, abs=0.01)


def test_nothing_measured_has_no_quantiles():
    assert Latencies().report().p50 is None


def test_merged_latencies_count_all():
    first, second = Latencies(), Latencies()
    first.add(1.0, 99)
    second.add(1000.0)
    first.merge(second)
    assert (first.count, first.quantile(0.5), first.quantile(1.0)) == (100, 1.0, 1000.0)


def test_a_copy_does_not_change_with_the_original():
    original = Latencies()
    original.add(5.0, 2)
    copied = original.copy()
    original.add(7.0)
    assert copied.buckets != original.buckets
    assert copied.count == 2
    assert copied.sum_ms == 10.0
