import random

from hypothesis import given, settings
from hypothesis import strategies as st

from walle_deploy.monitoring.devices import DeviceSet, device_hash


def filled(names, bound=10**6):
    found = DeviceSet(bound)
    for name in names:
        found.add([device_hash(name)])
    return found


@settings(max_examples=40)
@given(st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)), st.sampled_from([1, 8, 100]))
def test_order_repetition_and_merging_change_nothing(left, right, bound):
    names, others = [f"d{n}" for n in left], [f"d{n}" for n in right]
    merged = filled(names, bound)
    merged.merge(filled(others, bound))
    once = filled(sorted({*names, *others}), bound)
    assert merged.dump() == once.dump()
    assert DeviceSet.load(merged.dump()).dump() == merged.dump()
    if merged.is_exact:
        assert len(merged) == len({*names, *others})


def test_numbers_beyond_the_bound_are_near():
    rng = random.Random(7)
    bound, count = 1_000, 50_000
    found = DeviceSet(bound)
    found.add(rng.getrandbits(64) for _ in range(count))
    assert not found.is_exact
    # five standard errors of 1.2 / sqrt(bound)
    assert abs(len(found) / count - 1) < 5 * 1.2 / bound**0.5


def test_a_large_set_grows_in_parts():
    found = DeviceSet()
    for start in range(0, 30_000, 100):
        found.add(range(start, start + 200))
    assert len(found) == 30_100
