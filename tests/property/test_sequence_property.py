"""A device's sequences are those of the naive builder, however it is driven."""

import random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.events import KINDS, Event
from walle_stream.stream.sequence import DeviceSequence, SequencePolicy
from walle_stream.testing.oracles import NaiveSequence, RecordingSink

INSTANCES, PAGE_IDS, UIDS = ("", "", "1", "2"), "pq", ("", "", "u", "v", "w")


class Step(NamedTuple):
    """An event with the partition's watermark that comes with it."""

    event: Event
    watermark_ms: int


class Draw(NamedTuple):
    """Draws for one step; times are relative to the previous steps."""

    kind: str
    page_id: str
    instance: str
    uid: str
    time_step_ms: int
    lag_ms: int
    watermark_step_ms: int
    ingest_lag_ms: int
    item: str | None


def steps_of(draws):
    steps, now_ms, watermark_ms = [], 50, 50
    for draw in draws:
        now_ms += draw.time_step_ms
        watermark_ms += draw.watermark_step_ms
        contents: dict[str, Any] = {} if draw.item is None else {"item": draw.item, "other": 1}
        event = Event(
            "d1",
            draw.kind,
            draw.kind,
            draw.page_id,
            draw.instance,
            now_ms - draw.lag_ms,
            watermark_ms - draw.ingest_lag_ms,
            contents,
            draw.uid,
        )
        steps.append(Step(event, watermark_ms))
    return steps


# few values, so that ties, equal deadlines and late events are common
streams = st.lists(
    st.builds(
        Draw,
        kind=st.sampled_from(KINDS),
        page_id=st.sampled_from(PAGE_IDS),
        instance=st.sampled_from(INSTANCES),
        uid=st.sampled_from(UIDS),
        time_step_ms=st.sampled_from((0, 0, 1, 2, 5, 30)),
        lag_ms=st.sampled_from((0, 0, 0, 1, 3, 8)),
        watermark_step_ms=st.sampled_from((0, 1, 2, 5, 20)),
        ingest_lag_ms=st.sampled_from((0, 0, 1, 4)),
        item=st.sampled_from((None, "x")),
    ),
    max_size=30,
).map(steps_of)
policies = st.builds(
    SequencePolicy,
    page_timeout_ms=st.sampled_from((None, 1, 5, 10)),
    out_of_order_ms=st.sampled_from((0, 0, 3, 5, 10)),
    page_max_events=st.sampled_from((1, 3, 10_000)),
    fields=st.sampled_from((None, frozenset({"item"}), frozenset())),
)


class Driver:
    """A device that can be advanced and put to rest at any moment."""

    def __init__(self, policy):
        self.policy = policy
        self.sequence = DeviceSequence(policy, "d1")
        self.sink = RecordingSink()
        self.stored: dict[int, list[Any]] = {}

    def take(self, step):
        self.sequence.accept(step.event, step.watermark_ms, self.sink)

    def advance(self, watermark_ms):
        self.sequence.advance(watermark_ms, self.sink)

    def commit(self):
        new_rows, closed = self.sequence.pages.take_changes()
        for ordinal, index, row in new_rows:
            page = self.stored.setdefault(ordinal, [])
            assert index == len(page)
            page.append(row)
        for ordinal, count in closed:
            assert len(self.stored.pop(ordinal)) == count

    def rest(self):
        self.commit()
        assert set(self.stored) == {header[2] for header in self.sequence.export()[4]}
        exported = msgspec.msgpack.decode(msgspec.msgpack.encode(self.sequence.export()))
        deadline_ms = self.sequence.settle()
        self.sequence = DeviceSequence.restore(self.policy, exported, self.stored, "d1")
        assert self.sequence.settle() == deadline_ms

    def play(self, steps, cuts=()):
        for number, step in enumerate(steps):
            if number in cuts:
                self.rest()
            self.take(step)
        if len(steps) in cuts:
            self.rest()
        state = self.sequence.export()
        self.sequence.finish(self.sink)
        return self.sink.records, state


def check_against_naive(policy, steps):
    naive = NaiveSequence(
        policy.page_timeout_ms,
        policy.out_of_order_ms,
        policy.page_max_events,
        policy.fields,
        "d1",
    )
    for step in steps:
        naive.accept(*step)
    naive.finish()
    records, _ = Driver(policy).play(steps)
    assert records == naive.records, (policy, steps)


def check_cuts(policy, steps, cut_sets):
    expected = Driver(policy).play(steps)
    for cuts in cut_sets:
        assert Driver(policy).play(steps, cuts) == expected, (policy, steps, cuts)


def check_extra_advances(policy, steps, rng):
    plain, eager = Driver(policy), Driver(policy)
    watermark_ms = 0
    for step in steps:
        for _ in range(rng.choice((0, 0, 1, 2))):
            # other devices move the watermark too, up to the one of the next event
            watermark_ms = rng.randint(watermark_ms, step.watermark_ms)
            eager.advance(watermark_ms)
        watermark_ms = step.watermark_ms
        plain.take(step)
        eager.take(step)
        if rng.random() < 0.5:
            eager.advance(watermark_ms)
        if rng.random() < 0.2:
            eager.rest()
    for driver in (plain, eager):
        driver.advance(watermark_ms)
    assert eager.sequence.export() == plain.sequence.export(), (policy, steps)
    assert eager.sequence.settle() == plain.sequence.settle()
    for driver in (plain, eager):
        driver.sequence.finish(driver.sink)
    assert eager.sink.records == plain.sink.records, (policy, steps)


@settings(max_examples=1_000)
@given(policy=policies, steps=streams)
def test_sequences_are_those_of_the_naive_builder(policy, steps):
    check_against_naive(policy, steps)


@settings(max_examples=300)
@given(policy=policies, steps=streams)
def test_resting_at_any_point_changes_nothing(policy, steps):
    each_point = [{point} for point in range(len(steps) + 1)]
    check_cuts(policy, steps, [*each_point, set(range(len(steps) + 1))])


@settings(max_examples=500)
@given(policy=policies, steps=streams, rng=st.randoms(use_true_random=False))
def test_calling_advance_at_more_moments_changes_nothing(policy, steps, rng):
    check_extra_advances(policy, steps, rng)


@settings(max_examples=300)
@given(policy=policies, steps=streams)
def test_every_event_leaves_exactly_once(policy, steps):
    records, _ = Driver(policy).play(steps)
    given_ids = [id(step.event) for step in steps]
    left = [
        id(record[1])
        for record in records
        if record[0] in {"event", "duplicate", "late"} and id(record[1]) in set(given_ids)
    ]
    assert sorted(left) == sorted(given_ids)


@settings(max_examples=300)
@given(policy=policies, steps=streams)
def test_released_events_never_go_back_in_time(policy, steps):
    records, _ = Driver(policy).play(steps)
    own = {id(step.event) for step in steps}
    times = [
        record[1].event_time_ms
        for record in records
        if record[0] == "event" and id(record[1]) in own
    ]
    assert times == sorted(times)


def random_draw(rng):
    return Draw(
        rng.choice(KINDS),
        rng.choice(PAGE_IDS),
        rng.choice(INSTANCES),
        rng.choice(UIDS),
        rng.choice((0, 0, 1, 2, 5, 30)),
        rng.choice((0, 0, 0, 1, 3, 8)),
        rng.choice((0, 1, 2, 5, 20)),
        rng.choice((0, 0, 1, 4)),
        rng.choice((None, "x")),
    )


@pytest.mark.slow
def test_many_streams_are_those_of_the_naive_builder_however_driven():
    rng = random.Random(20_220_711)
    for _ in range(20_000):
        policy = SequencePolicy(
            page_timeout_ms=rng.choice((None, 1, 5, 10, 40)),
            out_of_order_ms=rng.choice((0, 3, 5, 10)),
            page_max_events=rng.choice((1, 3, 10_000)),
            fields=rng.choice((None, frozenset({"item"}))),
        )
        steps = steps_of([random_draw(rng) for _ in range(rng.randint(1, 40))])
        check_against_naive(policy, steps)
        check_cuts(policy, steps, [{rng.randint(0, len(steps))}])
        check_extra_advances(policy, steps, rng)
