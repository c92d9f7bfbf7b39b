import asyncio
import os
import subprocess
import sys
import threading
from collections import defaultdict
from types import SimpleNamespace

import pytest

from walle_connectors.faust import watchdog
from walle_connectors.faust.settings import KafkaPart
from walle_connectors.faust.watchdog import Place, StallRule, TopicRule, Watchdog


def test_lag_without_progress_is_noticed_after_the_patience():
    rule = StallRule(1_000)
    assert rule.observe(0, {"p0": Place(5, is_behind=True)}) is None
    assert rule.observe(900, {"p0": Place(5, is_behind=True)}) is None
    assert "1 s with records waiting in p0" in rule.observe(1_000, {"p0": Place(5, is_behind=True)})


def test_progress_begins_the_patience_anew():
    rule = StallRule(1_000)
    for now_ms, done in ((0, 5), (900, 6), (1_800, 7)):
        assert rule.observe(now_ms, {"p0": Place(done, is_behind=True)}) is None
    assert rule.observe(2_900, {"p0": Place(7, is_behind=True)})


def test_without_lag_nothing_has_to_happen():
    rule = StallRule(1_000)
    for now_ms in range(0, 10_000, 500):
        assert rule.observe(now_ms, {"p0": Place(5, is_behind=False)}) is None
    assert rule.observe(10_400, {"p0": Place(5, is_behind=True)}) is None


def test_a_partition_that_was_given_away_is_forgotten():
    rule = StallRule(1_000)
    rule.observe(0, {"p0": Place(5, is_behind=True)})
    rule.observe(500, {})
    assert rule.observe(1_200, {"p0": Place(5, is_behind=True)}) is None


def test_one_partition_that_stands_still_is_enough():
    rule = StallRule(1_000)
    for now_ms in (0, 600, 1_200):
        reason = rule.observe(
            now_ms, {"a": Place(now_ms, is_behind=True), "b": Place(1, is_behind=True)}
        )
    assert reason is not None
    assert "waiting in b" in reason


@pytest.mark.parametrize(
    ("partitions", "places", "words"),
    [
        (0, {}, "'t' is not on the broker any more"),
        (5, {0: (3, 4)}, "has 5 partitions now, not 4"),
        (4, {0: (3, 4), 1: (9, 8)}, "'t' ends before what was read of it: it was made anew"),
    ],
)
def test_another_topic_than_at_the_start_is_noticed_at_the_second_look(partitions, places, words):
    rule = TopicRule("t")
    assert rule.observe(4, {0: (3, 4), 1: (4, 4)}) is None
    assert rule.observe(partitions, places) is None
    assert words in rule.observe(partitions, places)


def test_a_broker_that_is_starting_may_forget_a_topic_for_a_moment():
    rule = TopicRule("t")
    for partitions in (0, 4, 0, 4, 4, 0):
        assert rule.observe(partitions, {}) is None


def test_the_end_is_one_line_and_an_exit_code_of_its_own():
    code = "from walle_connectors.faust.watchdog import end_process; end_process('no progress')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 14
    assert done.stderr == "walle: no progress: the process ends, start it again and it goes on\n"


LAST_RECORD = 8
"""Behind it are offsets of no record."""


class Stub:
    """Makes Faust apps that stand at one offset."""

    @classmethod
    def app(cls, committed, read, position, *, acked=()):
        tp = watchdog.TopicPartition("t", 0)

        async def where(_):
            return position

        consumer = SimpleNamespace(
            assignment=lambda: [tp, watchdog.TopicPartition("changelog", 0)],
            position=where,
            _committed_offset=defaultdict(lambda: None, {tp: committed}),
            _read_offset=defaultdict(lambda: None, {tp: read}),
            _acked=defaultdict(list, {tp: list(acked)}),
        )
        recovery = SimpleNamespace(active_offsets={"a": None, "b": 3})
        conf = SimpleNamespace(id="g")
        tables = SimpleNamespace(recovery=recovery)
        return SimpleNamespace(conf=conf, consumer=consumer, tables=tables, should_stop=False)


@pytest.fixture
def broker(monkeypatch):
    """A broker whose topic ``t`` has a partition that ends at 10; its topics may be changed."""
    found = SimpleNamespace(
        _partitions={"t": {0: SimpleNamespace(leader=1, replicas=[1])}},
        topics=lambda **_: list(found._partitions),
        partitions_for_topic=lambda name: set(found._partitions[name]),
    )

    class Consumer:
        def __init__(self):
            self._client = self

        async def fetch_all_metadata(self):
            return found

        async def end_offsets(self, asked):
            return dict.fromkeys(asked, 10)

        def assign(self, asked):
            assert asked == [watchdog.TopicPartition("t", 0)]

        def seek(self, _place, offset):
            self.offset = offset

        async def getmany(self, place, **_):
            return {place: ["a record"]} if self.offset < LAST_RECORD else {}

        async def stop(self):
            pass

    async def connect(_part, **_):
        return Consumer()

    monkeypatch.setattr(watchdog, "connect", connect)
    return found._partitions


def run(app, seconds):
    """Let a watchdog with a patience of 50 ms look at an app; return why it ended it."""
    reasons = []

    async def watch():
        task = asyncio.current_task()
        dog = Watchdog(
            app,
            KafkaPart(brokers="b:1", topic="t"),
            50,
            lambda reason: (reasons.append(reason), task.cancel()),
        )
        dog._guard = lambda: None  # a busy machine stops a loop for longer than 50 ms, too
        try:
            async with asyncio.timeout(seconds):
                await dog.run()
        except (TimeoutError, asyncio.CancelledError):
            return

    asyncio.run(watch())
    return reasons


def test_a_worker_that_reads_no_further_is_ended(broker):
    (reason,) = run(Stub.app(committed=5, read=4, position=5), 60)
    assert "records waiting in TopicPartition(topic='t', partition=0)" in reason


def test_a_worker_that_does_not_process_what_it_read_is_ended(broker):
    assert run(Stub.app(committed=5, read=9, position=10), 60)


def test_a_worker_that_is_done_stays(broker):
    assert run(Stub.app(committed=10, read=9, position=10), 0.3) == []


def test_a_worker_whose_event_loop_stands_is_ended(broker):
    app, reasons, is_ended = Stub.app(committed=10, read=9, position=10), [], threading.Event()
    app.consumer.assignment = lambda: is_ended.wait(60) and []

    def end(reason):
        reasons.append(reason)
        is_ended.set()

    async def watch():
        task = asyncio.ensure_future(
            Watchdog(app, KafkaPart(brokers="b:1", topic="t"), 50, end).run()
        )
        await asyncio.to_thread(is_ended.wait, 60)
        app.should_stop = True
        task.cancel()

    asyncio.run(watch())
    assert "stood still for" in reasons[0]


def test_a_worker_that_nobody_watches_any_more_is_ended(broker):
    app, is_ended = Stub.app(committed=10, read=9, position=10), threading.Event()

    def end(_reason):
        app.should_stop = True
        is_ended.set()

    async def watch():
        dog = Watchdog(app, KafkaPart(brokers="b:1", topic="t"), 50, end)
        task = asyncio.ensure_future(dog.run())
        while not dog.places:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        task.cancel()
        assert await asyncio.to_thread(is_ended.wait, 60)

    asyncio.run(watch())


def test_a_rebalance_that_cancels_a_question_does_not_end_the_watch(broker, caplog):
    app = Stub.app(committed=5, read=4, position=5)
    where, asked = app.consumer.position, []

    async def cancelled_once(place):
        asked.append(place)
        if len(asked) == 1:
            raise asyncio.CancelledError
        return await where(place)

    app.consumer.position = cancelled_once
    assert run(app, 60)
    assert "cancelled" in caplog.text


def test_a_worker_whose_topic_is_gone_is_ended(broker):
    del broker["t"]
    (reason,) = run(Stub.app(committed=10, read=9, position=10), 60)
    assert "topic 't' is not on the broker any more" in reason


@pytest.mark.parametrize(("held", "is_ended"), [(set(), True), ({0}, False), (None, False)])
def test_a_worker_without_partitions_is_ended_if_nobody_has_them(
    broker, monkeypatch, held, is_ended
):
    async def held_partitions(_options, group, topic):
        assert (group, topic) == ("g", "t")
        return held

    monkeypatch.setattr(watchdog, "held_partitions", held_partitions)
    app = Stub.app(committed=10, read=9, position=10)
    app.consumer.assignment = list
    reasons = run(app, 60 if is_ended else 0.3)
    assert [True for reason in reasons if "records waiting in" in reason] == [True] * is_ended


@pytest.mark.parametrize("committed", [None, 5])
def test_records_that_were_fetched_and_given_to_nobody_are_noticed(broker, committed):
    (reason,) = run(Stub.app(committed=committed, read=committed, position=10), 60)
    assert "no progress for" in reason


def test_offsets_of_no_record_are_not_waited_for(broker):
    assert run(Stub.app(committed=8, read=7, position=10), 0.3) == []


def test_a_worker_whose_topic_was_made_anew_is_ended(broker):
    (reason,) = run(Stub.app(committed=12, read=11, position=0), 60)
    assert "made anew" in reason


@pytest.mark.parametrize(
    ("error", "said"), [(watchdog.TunnelError("away"), "away"), (TimeoutError(), "TimeoutError")]
)
def test_a_broker_that_does_not_answer_is_no_stall(monkeypatch, caplog, error, said):
    async def connect(_part, **_):
        raise error

    monkeypatch.setattr(watchdog, "connect", connect)
    assert run(Stub.app(committed=5, read=4, position=5), 0.3) == []
    assert caplog.messages[0] == f"the watchdog cannot ask the broker: {said}"


def test_of_a_broker_that_does_not_answer_nothing_is_shown_as_known(broker):
    dog = Watchdog(Stub.app(10, 9, 10), KafkaPart(brokers="b:1", topic="t"), 50, pytest.fail)
    dog._guard = lambda: None
    shown, look_at_topic = [], dog._look_at_topic

    async def look(consumer):
        shown.append(len(dog.places))
        if len(shown) == 2:
            raise TimeoutError
        if len(shown) == 3:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return await look_at_topic(consumer)

    dog._look_at_topic = look
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(dog.run())
    assert shown == [0, 1, 0]
