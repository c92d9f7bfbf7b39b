from hypothesis import given
from hypothesis import strategies as st

from walle_stream.tunnel.receiver import DeviceSeen, Senders, Verdict


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 8)), max_size=60))
def test_each_number_of_an_incarnation_is_new_at_most_once_and_never_behind(arrivals):
    seen, taken = DeviceSeen([], []), {"a": [], "b": []}
    for incarnation, number in arrivals:
        verdict, _ = seen.judge(incarnation, number)
        last = taken[incarnation][-1] if taken[incarnation] else 0
        assert (verdict is Verdict.SEEN) == (number <= last)
        assert (verdict is Verdict.GAP) == (number > last + 1)
        if verdict is not Verdict.SEEN:
            taken[incarnation].append(number)


def test_a_new_incarnation_starts_again_behind_the_old_one():
    seen = DeviceSeen([], [])
    assert seen.judge("old", 1) == (Verdict.NEW, 0)
    assert seen.judge("new", 1) == (Verdict.NEW, 1)
    assert seen.judge("old", 1) == (Verdict.SEEN, 0)


def test_an_older_epoch_is_refused_per_incarnation_and_partition():
    senders = Senders()
    assert senders.admits("i", 0, 2)
    assert not senders.admits("i", 0, 1)
    assert senders.admits("i", 0, 2)
    assert senders.admits("i", 1, 1)
    assert senders.admits("j", 0, 1)
