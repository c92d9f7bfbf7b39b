"""Messages to scripts: who gets them, what waits, and what is dropped."""

import msgspec
import pytest

from tests.property.test_messages_property import make_life
from tests.unit.stream.test_machine import make_events
from walle_stream.actors.parts import messages as parts_messages
from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.turns.turn import Delivery
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.message_payload import MESSAGE_KIND, MessagePayload, encode_payload


def message(device_id, number=0, sender="", value=b"1", **how):
    payload = encode_payload(MessagePayload(msgspec.Raw(value), **how))
    return encode_downlink(DownlinkEnvelope(device_id, MESSAGE_KIND, payload, sender, number))


class World:
    """A partition with some devices, and its way down."""

    def __init__(self, folder):
        self.life = make_life(folder, 0, 10**6, [])
        self.host = self.life.open()

    def happen(self, device_id="a"):
        """One event of a device."""
        event = msgspec.structs.replace(make_events(1)[0], device_id=device_id)
        batch = SourceBatch(0, EventBatch([event]), device_id.encode(), SourceCounts(), [])
        self.host.take([Delivery(batch, 0.0)])
        self.host.commit()

    def come(self, *messages):
        """Messages come, and all are taken."""
        self.life.tunnel.log += messages
        self.life.tunnel.seen = len(self.life.tunnel.log)
        self.host.idle()
        while self.host.parts[Calls].is_behind:
            self.host.idle()

    def restart(self):
        self.host.restart()

    @property
    def counters(self):
        return self.host.status().counters

    def told(self):
        """Who was told what, as often as it was; closes the partition."""
        self.host.close(0.0)
        found = []
        with PartitionStore.open(self.life.folder / "rows", read_only=True) as store:
            for key, value in store.scan(keys.DEVICE_PREFIX):
                device_id, table, _ = keys.parse_device(key)
                if table == keys.TABLE_FEATURE:
                    feature = msgspec.json.decode(msgspec.msgpack.decode(value)[1][1])
                    if isinstance(feature[3], list) and len(feature[3]) == 3:
                        found.append((device_id, feature[3][1]))
            self.letters = [
                msgspec.json.decode(value) for _, value in store.scan(keys.DEAD_LETTER_PREFIX)
            ]
            self.senders = [key[1:] for key, _ in store.scan(keys.SENDER_PREFIX)]
        return found


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_only_tasks_that_take_messages_are_woken(world):
    world.happen()
    runs = world.counters.task_runs
    world.come(
        message("a", 1),
        message("a", 2, task="funnel"),
        message("a", 3, task="none"),
        message("a", 4, task="visit"),
    )
    assert world.counters.task_runs == runs + 2
    assert world.told() == [("a", 1), ("a", 4)]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({}, ["a", "ab", "b"]),
        ({"device": "a*"}, ["a", "ab"]),
        ({"device": "[!a]"}, ["b"]),
        ({"task": "funnel"}, ["a", "ab", "b"]),
        ({"task": "funnel@1"}, ["a", "ab", "b"]),
        ({"task": "funnel@2"}, []),
        ({"task": "nothing"}, []),
        ({"task": "visit", "device": "b"}, ["b"]),
    ],
)
def test_a_message_for_all_says_for_whom_it_is(world, where, wanted, monkeypatch):
    monkeypatch.setattr(parts_messages, "DEVICES_AT_ONCE", 2)
    for device_id in ("ab", "b", "a"):
        world.happen(device_id)
    world.come(message("", 1, "s", where=where))
    assert world.told() == [(device_id, 1) for device_id in wanted]


def test_a_message_for_all_goes_on_where_a_death_left_it(world, monkeypatch):
    monkeypatch.setattr(parts_messages, "DEVICES_AT_ONCE", 2)
    for device_id in "edcba":
        world.happen(device_id)
    world.life.tunnel.log += [message("", 1, "s"), message("a", 2, "s")]
    world.life.tunnel.seen = 2
    for _ in range(3):
        world.host.idle()
        world.restart()
    world.happen("aa")  # behind the cursor: it came too late
    world.come()
    assert world.counters.messages == 2
    assert sorted(world.told()) == [
        *(("abcde"[n], 1) for n in range(1)),
        ("a", 2),
        *((d, 1) for d in "bcde"),
    ]


def test_a_repetition_is_dropped_and_counted(world):
    world.happen()
    world.come(message("a", 3, "s"), message("a", 3, "s"), message("a", 2, "s"))
    world.restart()
    world.come(message("a", 3, "s"), message("a", 1, "t"), message("a", 4, "s"), message("a"))
    assert (world.counters.messages, world.counters.dropped_messages) == (7, 3)
    assert world.told() == [("a", 3), ("a", 1), ("a", 4), ("a", 0)]


def test_the_sender_that_was_seen_longest_ago_is_forgotten(world, monkeypatch):
    monkeypatch.setattr(parts_messages, "SENDERS_MAX", 2)
    world.happen()
    world.come(message("a", 5, "s"), message("a", 5, "t"), message("a", 1, "s"))
    world.restart()
    world.come(message("a", 5, "u"), message("a", 5, "s"), message("a", 5, "t"))
    assert world.told() == [("a", 5)] * 4
    assert world.senders == [b"s", b"t"]


@pytest.mark.parametrize(("name", "bound"), [("WAITING_MAX", 2), ("WAITING_MAX_BYTES", 25)])
def test_what_waits_is_bounded_and_given_before_the_first_event(world, monkeypatch, name, bound):
    monkeypatch.setattr(parts_messages, name, bound)
    world.come(*(message("late", n, "s") for n in (1, 2, 3)))
    world.restart()
    assert world.host.status().waiting_messages == 2
    assert (world.counters.dropped_messages, world.counters.dead_letters) == (1, 1)
    world.happen("late")
    assert world.host.status().waiting_messages == 0
    world.come(message("late", 4, "s"))
    assert world.told() == [("late", 1), ("late", 2), ("late", 4)]
    assert "no room for one to 'late'" in world.letters[0]["reason"]


def test_the_device_of_an_agent_is_always_there(tmp_path):
    world = World(tmp_path)
    world.life.plan = msgspec.structs.replace(world.life.plan, only_device="a")
    world.host.close(0.0)
    world.host = world.life.open()
    world.come(message("other", 1), message("a", 2), message("", 3))
    world.host.abandon()
    world.host = world.life.open()
    world.come(message("a", 4))
    assert (world.counters.devices, world.counters.messages) == (1, 3)
    assert world.told() == [("a", 2), ("a", 3), ("a", 4)]


def test_an_agent_whose_tasks_take_no_messages_does_not_begin_to_exist(tmp_path):
    world = World(tmp_path)
    tasks = {"funnel": world.life.plan.tasks["funnel"]}
    world.life.plan = msgspec.structs.replace(world.life.plan, only_device="a", tasks=tasks)
    for number in (1, 2):
        world.host.close(0.0)
        world.host = world.life.open()
        world.come(message("a", number), message("", number))
    assert (world.counters.devices, world.counters.messages) == (0, 4)


@pytest.mark.parametrize(
    "data",
    [
        b"poison",
        encode_downlink(DownlinkEnvelope("a", "greeting", b"1")),
        encode_downlink(DownlinkEnvelope("a", MESSAGE_KIND, b'{"value":')),
        encode_downlink(DownlinkEnvelope("a", MESSAGE_KIND, b'{"value":1,"where":{"os":"x"}}')),
        encode_downlink(DownlinkEnvelope("a", MESSAGE_KIND, b'{"value":{"k":1,"k":2}}')),
        encode_downlink(DownlinkEnvelope("a\0b", MESSAGE_KIND, b'{"value":1}')),
        encode_downlink(DownlinkEnvelope("a" * 2_000, MESSAGE_KIND, b'{"value":1}')),
    ],
)
def test_what_cannot_be_taken_is_a_dead_letter_and_stops_nothing(world, data):
    world.happen()
    world.come(data, message("a", 1, "s"))
    assert world.counters.dropped_messages == 1
    assert world.told() == [("a", 1)]
    assert [letter["holds"] for letter in world.letters] == ["message"]
