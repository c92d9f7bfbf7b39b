"""The tasks fired are those of the naive matcher, whatever happens meanwhile."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.stream.trigger import EMPTY_CURSOR, TriggerTrie
from walle_stream.testing.oracles import NaiveTriggers

# few letters, shared by events and pages: prefixes, overlaps and double matches are common
EVENT_IDS, PAGE_IDS, TASKS = "abcz", "abpz", ("t1", "t2", "t3", "t4")
TRIGGER_IDS = "abcp"

conditions = st.lists(st.sampled_from(TRIGGER_IDS), min_size=1, max_size=5)
events = st.tuples(st.just("event"), st.sampled_from(EVENT_IDS), st.sampled_from(PAGE_IDS))
inserts = st.tuples(st.just("insert"), st.sampled_from(TASKS), conditions)
removes = st.tuples(st.just("remove"), st.sampled_from(TASKS))
rests = st.tuples(st.just("rest"))


def play(steps):
    """Give the steps to trie and naive matcher and compare after each."""
    trie, naive, cursor = TriggerTrie(), NaiveTriggers(), EMPTY_CURSOR
    inserted = []
    for number, (step, *args) in enumerate(steps):
        if step == "event":
            cursor, tasks = trie.advance(cursor, *args)
            assert tasks == naive.advance(*args), (number, steps)
            assert list(cursor) == sorted(set(cursor))
        elif step == "insert":
            trie.insert(*args)
            naive.insert(*args)
            inserted.append(args)
        elif step == "remove":
            # as a device that gets another set of tasks: a new trie, the same matches
            inserted = [each for each in inserted if each[0] != args[0]]
            naive.remove(*args)
            paths, trie = trie.export_cursor(cursor), TriggerTrie()
            for each in inserted:
                trie.insert(*each)
            cursor = trie.import_cursor(paths)
        else:
            # a device comes to rest and back whenever memory wants it: nothing may follow from that
            cursor = trie.import_cursor(trie.export_cursor(cursor))


def with_fixed_tasks(inserted, stream):
    return [*inserted, *stream]


@settings(max_examples=1_000)
@given(
    steps=st.builds(
        with_fixed_tasks,
        st.lists(inserts, min_size=1, max_size=8),
        st.lists(events, min_size=1, max_size=30),
    )
)
def test_fixed_tasks_fire_like_the_naive_matcher(steps):
    play(steps)


@settings(max_examples=1_000)
@given(
    steps=st.builds(
        with_fixed_tasks,
        st.lists(inserts, max_size=6),
        st.lists(st.one_of(events, events, events, inserts, removes, rests), max_size=40),
    )
)
def test_tasks_that_come_and_go_fire_like_the_naive_matcher(steps):
    play(steps)


@settings(max_examples=300)
@given(
    inserted=st.lists(inserts, min_size=1, max_size=8),
    stream=st.lists(events, max_size=20),
    order=st.randoms(use_true_random=False),
)
def test_the_order_of_insertions_does_not_matter(inserted, stream, order):
    shuffled = inserted[:]
    order.shuffle(shuffled)
    tries = []
    for steps in (inserted, shuffled):
        trie = TriggerTrie()
        for _, task, condition in steps:
            trie.insert(task, condition)
        tries.append(trie)
    cursors = [EMPTY_CURSOR, EMPTY_CURSOR]
    for _, event_id, page_id in stream:
        results = [
            trie.advance(cursor, event_id, page_id)
            for trie, cursor in zip(tries, cursors, strict=True)
        ]
        assert results[0] == results[1]
        cursors = [cursor for cursor, _ in results]


def random_steps(rng):
    def insert():
        length = rng.randint(1, 5)
        return ("insert", rng.choice(TASKS), [rng.choice(TRIGGER_IDS) for _ in range(length)])

    steps = [insert() for _ in range(rng.randint(1, 6))]
    changes = rng.choice((0.0, 0.15))
    for _ in range(rng.randint(5, 25)):
        if rng.random() >= changes:
            steps.append(("event", rng.choice(EVENT_IDS), rng.choice(PAGE_IDS)))
        else:
            steps.append(rng.choice((insert(), insert(), ("remove", rng.choice(TASKS)), ("rest",))))
    return steps


@pytest.mark.slow
def test_a_hundred_thousand_streams_fire_like_the_naive_matcher():
    rng = random.Random(20_220_711)
    for _ in range(100_000):
        play(random_steps(rng))
