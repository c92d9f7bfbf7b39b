"""Messages among events: wherever turns are cut or end, each is run once, in its device's order."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.test_recovery_property import Life, Tunnel, canonical
from tests.unit.stream.test_machine import make_events
from walle_stream.actors.parts import messages as parts_messages
from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.turns.turn import Delivery
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.message_payload import MESSAGE_KIND, MessagePayload, encode_payload

POLICY = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
EVENTS = 100
LISTENER, SILENT = "visit", "funnel"


class Log(Tunnel):
    """A way down of which more and more is to be seen."""

    def __init__(self, log):
        super().__init__()
        self.log, self.seen = log, 0

    def receive(self, _partition, position, _max_bytes):
        # a few at a time, as a bound of bytes would
        return list(enumerate(self.log[position : self.seen], position + 1))[:3]


def make_life(folder, horizon, keep, log):
    life = Life(folder, horizon, keep, POLICY)
    life.tunnel = Log(log)
    tasks = {
        name: msgspec.structs.replace(task, takes_messages=name == LISTENER)
        for name, task in life.plan.tasks.items()
    }
    life.plan = msgspec.structs.replace(life.plan, tasks=tasks)
    return life


def live(life, events, places, cuts, deaths):
    """Deliver with cuts; message n is there behind ``places[n]`` events."""
    host, start, step = life.open(), 0, 0
    deliveries = []

    def dies():
        nonlocal step
        step += 1
        return step in deaths

    def is_behind():
        return host.parts[Calls].is_behind

    for end in sorted({*cuts, *places, len(events)}):
        batch = SourceBatch(
            0, EventBatch(events[start:end]), b"%d" % end, SourceCounts(), [], end == len(events)
        )
        deliveries.append(Delivery(batch, 0.0))
        host.take(deliveries)
        if dies():
            host.abandon()
            host = life.open()
            # what was taken comes again; the machine lets its events go
            events_again = EventBatch(events[start:end])
            batch = SourceBatch(
                0, events_again, b"%d" % end, SourceCounts(), [], end == len(events)
            )
            host.take([Delivery(batch, 0.0)])
        life.tunnel.seen = sum(place <= end for place in places)
        host.commit()
        deliveries, start = [], end
        if dies():
            host.abandon()
            host = life.open()
        host.idle()
        while is_behind():  # nothing else comes before all is taken
            if dies():
                host.abandon()
                host = life.open()
            host.idle()
    host.close(0.0)
    counters = host.status().counters
    with PartitionStore.open(life.folder / "rows", read_only=True) as store:
        return dict(canonical(store)), counters.features, counters.task_runs, counters.devices


def naive(events, log, places):
    """Return the messages (sender, number) that each device gets, processed one at a time."""
    told, seen, waiting, last = {}, set(), {}, {}
    for at in range(len(events) + 1):
        if at:
            device = events[at - 1].device_id
            seen.add(device)
            told.setdefault(device, []).extend(waiting.pop(device, ()))
        for envelope in [each for each, place in zip(log, places, strict=True) if place == at]:
            if envelope.number <= last.get(envelope.sender, -1):
                continue
            last[envelope.sender] = envelope.number
            mark = [envelope.sender, envelope.number]
            for device in [envelope.device_id] if envelope.device_id else sorted(seen):
                (told if device in seen else waiting).setdefault(device, []).append(mark)
    return {device: marks for device, marks in told.items() if marks}, waiting


def told_of(rows):
    """The same, as the runs emitted it."""
    told = {}
    for key, value in sorted(rows.items()):
        if key[:1] == b"\x10" and (at := key.find(b"\x00\x04")) > 0:
            feature = msgspec.json.decode(msgspec.msgpack.decode(value)[1][1])
            if isinstance(feature[3], list) and len(feature[3]) == 3:
                told.setdefault(key[1:at].decode(), []).append(feature[3][:2])
    return told


@pytest.fixture(autouse=True)
def few_at_once():
    before = parts_messages.DEVICES_AT_ONCE
    parts_messages.DEVICES_AT_ONCE = 1
    yield
    parts_messages.DEVICES_AT_ONCE = before


@settings(max_examples=20)
@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(
            st.integers(0, EVENTS),
            st.sampled_from(["a", "b", "c", "nobody", "", ""]),
            st.sampled_from("st"),
            st.integers(0, 5),
        ),
        max_size=12,
    ),
    st.lists(st.integers(1, EVENTS), max_size=10),
    st.sets(st.integers(1, 40), max_size=10),
    st.sampled_from([0, 2, 10**6]),
    st.sampled_from([0, 1, 30, 10**6]),
)
@example(0, [(0, "a", "s", 1), (0, "b", "s", 2), (50, "", "s", 3)], [], {2, 3, 4, 5, 6}, 0, 10**6)
def test_cuts_and_deaths_change_nothing(seed, draws, cuts, deaths, keep, horizon):
    events = make_events(seed)[:EVENTS]
    draws = sorted((min(at, len(events)), *rest) for at, *rest in draws)
    cuts, places = [min(at, len(events)) for at in cuts], [at for at, *_ in draws]
    payload = encode_payload(MessagePayload(msgspec.Raw(b'{"x":1}')))
    log = [DownlinkEnvelope(who, MESSAGE_KIND, payload, *whose) for _, who, *whose in draws]
    encoded = list(map(encode_downlink, log))
    with tempfile.TemporaryDirectory() as folder:
        life = make_life(Path(folder), 0, 10**6, encoded)
        expected = live(life, events, places, range(1, len(events)), ())
    with tempfile.TemporaryDirectory() as folder:
        life = make_life(Path(folder), horizon, keep, encoded)
        assert live(life, events, places, cuts, deaths) == expected
        told, waiting = naive(events, log, places)
        assert told_of(expected[0]) == told
        with PartitionStore.open(Path(folder) / "rows", read_only=True) as store:
            assert len(list(store.scan(b"\x09"))) == sum(map(len, waiting.values()))
