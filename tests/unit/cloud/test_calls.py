import json
import sys
from collections import defaultdict
from pathlib import Path
from threading import Event

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import INCARNATION, call, stretch

from walle_stream.cloud.answering import AnsweringThread
from walle_stream.cloud.calls import IN_HAND, CloudCalls, show_services
from walle_stream.cloud.own_table import OwnTable
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.cloud.service_pool import Served
from walle_stream.errors import TopicError
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import decode_reply, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, decode_downlink, encode_uplink
from walle_stream.wire.metrics_text import Metrics

WAIT_S = 30


class Sender:
    """A way down: keeps what was sent, and acknowledges it when told."""

    def __init__(self):
        self.sent, self.acknowledged = [], True
        self._acks = defaultdict(list)

    def send(self, frames):
        self.sent += frames
        for partition, number, _ in frames:
            self._acks[partition].append(number)

    def acks(self, partition):
        return self._acks.pop(partition, ()) if self.acknowledged else ()

    def replies(self):
        envelopes = [decode_downlink(message) for _, _, message in self.sent]
        return [(each.device_id, decode_reply(each.payload)) for each in envelopes]


class Kafkaish:
    """A table of a topic's partition."""

    def __init__(self, path):
        self.path = path
        self.store = PartitionTable(path, 3, keeps_calls=True)
        self.offset = self.store.place.next

    def add(self, *calls):
        first, self.offset = self.offset, self.offset + len(calls)
        made = stretch(calls=calls, numbers=range(first, self.offset))
        self.store.take([made], b"", self.offset)


class Embedded:
    """The table of a partition whose devices are here."""

    def __init__(self, path):
        self.path = path
        self.partition = PartitionStore.open(path)
        self.store = OwnTable(self.partition)
        self.frames = 0

    def add(self, *calls):
        self.frames += 1
        [body] = encode_calls(calls, "none")
        made = encode_uplink(UplinkEnvelope(2, 1, INCARNATION, self.frames, body))
        self.store.merge([made])


@pytest.fixture(params=[Embedded, Kafkaish])
def table(request, tmp_path):
    made = request.param(tmp_path / "t")
    yield made
    made.store.close()


def step_until(calls, condition):
    while not condition():
        calls.step()
        Event().wait(0.001)


def test_both_tables_answer_the_same(table):
    def double(asked):
        assert asked.key.startswith(f"{INCARNATION}/")
        return {"n": 2 * asked.question["n"]}

    sender = Sender()
    calls = CloudCalls(lambda: [table.store], sender, {"s": Served(double)})
    table.add(*(call("d", n, question=json.dumps({"n": n}).encode()) for n in range(1, 200)))
    table.add(call("e", 1, "absent"), call("e", 2, question=b"[]"), call("e", 3, question=b"{"))
    step_until(calls, lambda: not table.store.open_calls(0, 1))
    found = sender.replies()
    assert [reply.number for device, reply in found if device == "d"] == list(range(1, 200))
    assert all(
        json.loads(bytes(each.value))["n"] == 2 * each.number for d, each in found if d == "d"
    )
    errors = {reply.number: reply.error for device, reply in found if device == "e"}
    assert "there is no service 'absent' (spec.services): the pipeline has s" in errors[1]
    assert errors[2].startswith(errors[3][:38])
    assert {partition for partition, _, _ in sender.sent} == {2}
    assert calls.counts["s"] == {"answered": 199, "failed": 0, "timed_out": 0, "waiting": 0}
    metrics = Metrics()
    show_services(metrics, calls.counts)
    assert 'walle_service_calls{service="s",state="answered"} 199' in metrics.render()
    calls.close()


def test_a_slow_service_holds_up_no_other_and_devices_keep_their_order(table):
    gate = Event()

    def slow(asked):
        if asked.question["n"] == 1:
            gate.wait(WAIT_S)

    sender = Sender()
    services = {"slow": Served(slow), "fast": Served(lambda _asked: 1)}
    calls = CloudCalls(lambda: [table.store], sender, services)
    question = [json.dumps({"n": n}).encode() for n in range(4)]
    table.add(*(call("d", n, "slow", question[n]) for n in (1, 2, 3)), call("d", 4, "fast"))
    table.add(call("e", 1, "slow", question[2]))
    step_until(calls, lambda: len(sender.sent) == 2)
    assert sorted((device, each.number) for device, each in sender.replies()) == [
        ("d", 4),
        ("e", 1),
    ]
    gate.set()
    step_until(calls, lambda: len(sender.sent) == 5)
    assert [each.number for _, each in sender.replies()[2:]] == [1, 2, 3]
    calls.close()


def test_so_many_are_in_hand_and_those_of_others_pass_them(table):
    sender, seen = Sender(), []
    sender.acknowledged = False
    services = {"a": Served(lambda asked: seen.append(asked.key)), "b": Served(lambda _asked: 1)}
    calls = CloudCalls(lambda: [table.store], sender, services)
    table.add(*(call(f"d{n}", 1, "a") for n in range(3 * IN_HAND)), call("e", 1, "b"))
    step_until(calls, lambda: len(sender.sent) == IN_HAND + 1)
    for _ in range(3):
        calls.step()
    assert (len(seen), calls.counts["a"]["waiting"]) == (IN_HAND, IN_HAND)
    sender.acknowledged = True
    step_until(calls, lambda: not table.store.open_calls(0, 1))
    assert len(sender.sent) == 3 * IN_HAND + 1
    assert len(set(seen)) == len(seen) == 3 * IN_HAND
    calls.close()


def test_a_call_is_open_until_its_reply_is_safe_and_the_next_worker_answers_it(tmp_path):
    lost = Kafkaish(tmp_path / "t")
    sender = Sender()
    sender.acknowledged = False
    stores = [lost.store]
    calls = CloudCalls(lambda: stores, sender, {"s": Served(lambda _asked: 1)})
    lost.add(call("d", 1))
    step_until(calls, lambda: sender.sent)
    lost.store.close()
    stores.clear()
    sender.acknowledged = True
    step_until(calls, lambda: calls.counts["s"]["waiting"] == 0)
    again = Kafkaish(tmp_path / "t")
    assert len(again.store.open_calls(0, 9)) == 1
    stores.append(again.store)
    step_until(calls, lambda: not again.store.open_calls(0, 1))
    first, second = sender.replies()
    assert first == second
    again.store.close()
    calls.close()


def test_a_partition_that_went_gets_no_reply(tmp_path):
    gate, table, sender = Event(), Kafkaish(tmp_path / "t"), Sender()
    stores = [table.store]
    calls = CloudCalls(lambda: stores, sender, {"s": Served(lambda _asked: gate.wait(WAIT_S))})
    table.add(call("d", 1))
    calls.step()
    stores.clear()
    calls.step()
    gate.set()
    step_until(calls, lambda: calls.counts["s"]["waiting"] == 0)
    assert sender.sent == []
    table.store.close()
    calls.close()


def test_a_thread_answers_when_it_is_woken_and_says_what_ended_it(tmp_path):
    table, sender = Kafkaish(tmp_path / "t"), Sender()
    answering = AnsweringThread(lambda: [table.store], sender, {"s": Served(lambda _asked: 1)})
    table.add(call("d", 1))
    answering.wake()
    while table.store.open_calls(0, 1):
        answering.check()
        Event().wait(0.001)
    assert answering.counts["s"]["answered"] == 1

    def refuse(_frames):
        raise TopicError("no such partition")

    sender.send = refuse
    table.add(call("d", 2))
    answering.wake()
    with pytest.raises(TopicError, match="no such partition"):  # noqa: PT012 - when it has
        while True:
            answering.check()
            Event().wait(0.001)
    answering.close()
    table.store.close()
