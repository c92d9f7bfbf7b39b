"""Every record that is refused has exactly one dead letter, here and at the sink, through any deaths."""

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_recovery_property import CountingPool, Life, deliver
from tests.unit.connectors.kafka.topic_double import Client, Fetcher
from walle_connectors.kafka.source import KafkaSourceModel
from walle_connectors.kafka.source.fetching import Record
from walle_connectors.kafka.source.reader import KafkaReader
from walle_connectors.kafka.source.records import RecordDecoder
from walle_stream.actors.rows.letter_rows import read_letters
from walle_stream.actors.turns.turn import Delivery
from walle_stream.reading import Opening
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.pages import plain_page
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.vm.results import GroupResult, RunResult

MAX_BYTES = 2_000
BAD = [
    (b"d1", b"{"),
    (b"d1", b"\xff"),
    (b"d1", None),
    (b"d2", b"[]"),
    (b"d2", b'{"id":"x"}'),
    (b"d2", b'{"x":"' + b"y" * MAX_BYTES + b'"}'),
    (None, b"{}"),
    (b"", b"{}"),
    (b"\xff", b"{}"),
]


class FailingPool(CountingPool):
    """Fails at some pages, always or for some attempts; what it says of one is the same each time."""

    def _group(self, device_id, state, runs):
        results, count = [], int(state.get("count", b"0"))
        for position, clock_ms, page in runs:
            if page[1].endswith("!"):
                results.append(RunResult(ok=False, error="KeyError", message=f"page {page[1]}"))
                continue
            count += 1
            emit = msgspec.json.encode([count, position, clock_ms, plain_page(page)])
            results.append(RunResult(ok=True, emits=[(emit, b"")]))
        return GroupResult(device_id, {"count": b"%d" % count}, results)


class Sink:
    """Outlives deaths; does not acknowledge every third time it is asked."""

    def __init__(self):
        self.taken, self.pending, self.asked = {}, [], 0

    def send(self, kept):
        known = self.taken.setdefault(kept.idempotency_key, kept)
        assert known == kept
        self.pending.append(kept.number)

    def acks(self, _partition):
        self.asked += 1
        if self.asked % 3 == 0:
            return []
        pending, self.pending = self.pending, []
        return pending


def good(number, *, fails):
    given = {"page_id": "p", "page_instance": f"{number}!" if fails else f"{number}"}
    for kind in ("page_enter", "page_exit"):
        value = {**given, "id": kind, "kind": kind, "event_time_ms": 10 * number}
        yield b"d%d" % (number % 3), json.dumps(value).encode()


def made(steps):
    rows = []
    for number, step in enumerate(steps):
        rows += good(number, fails=step == "fail") if isinstance(step, str) else [BAD[step]]
    return [Record(offset, 1_000 + offset, *row) for offset, row in enumerate(rows)]


def run(folder, records, cuts, deaths, attempts):
    life = Life(folder, 30, 10**6, SequencePolicy(page_timeout_ms=10**9))
    sink, life.pool = Sink(), FailingPool()
    tasks = {
        name: msgspec.structs.replace(task, on_error=(attempts, 0, True))
        for name, task in life.plan.tasks.items()
    }
    life.plan = msgspec.structs.replace(
        life.plan, sink=sink, pipeline="p", incarnation="ab", tasks=tasks
    )
    host = life.open()
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    for number, (start, end) in enumerate(pairwise(bounds)):
        batch = batch_of(records[start:end])
        if number in deaths:
            host.take([Delivery(batch_of(records[start:end]), 0.0)])
            host.abandon()  # taken, not committed
            host = life.open()
        deliver(host, Delivery(batch, 0.0))
        if number + 1 in deaths:
            host.abandon()  # committed, and some not sent
            host = life.open()
    host.close(1e12)
    with PartitionStore.open(folder / "rows", read_only=True) as store:
        assert list(store.scan(keys.UNSENT_LETTER_PREFIX)) == []
        return dict(read_letters(store)), sink.taken


def batch_of(records):
    """Read a topic that has these records alone."""
    model = KafkaSourceModel(brokers="h:1", topic="raw", stop_at_end=True)
    Client.topics["raw"] = [records]
    client, decoder = Client(model), RecordDecoder(MAX_BYTES)
    reader = KafkaReader(client, model, decoder, Opening({}, [0], 1_000), Fetcher(client, model))
    batches = []
    while not reader.is_done:
        batches += reader.read()
    [batch] = [batch for batch in batches if batch.counts.source_rows]
    return batch


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(st.sampled_from(["ok", "fail"]), st.integers(0, len(BAD) - 1)),
        min_size=8,
        max_size=40,
    ),
    st.lists(st.integers(1, 20), min_size=4, max_size=12),
    st.sets(st.integers(0, 12), max_size=4),
    st.integers(1, 3),
)
def test_every_refused_record_has_exactly_one_letter(steps, cuts, deaths, attempts):
    records = made(steps)
    with tempfile.TemporaryDirectory() as folder:
        kept, taken = run(Path(folder), records, cuts, deaths, attempts)
    letters = list(kept.values())
    refused = {
        f"raw[0]@{each.offset}": each.value or b""
        for each in records
        if (each.key, each.value) in BAD
    }
    own = [each for each in letters if each.route != "task"]
    assert len(own) == len(refused)
    assert {each.origin: each.record for each in own} == refused
    assert {each.attempts for each in letters if each.route == "task"} <= {attempts}
    assert {
        number: each.letter
        for number, each in zip((k.number for k in taken.values()), taken.values(), strict=True)
    } == kept
    # the same whatever died, and wherever batches were cut
    with tempfile.TemporaryDirectory() as folder:
        whole, _ = run(Path(folder), records, [], [], attempts)
    assert sorted(map(str, whole.values())) == sorted(map(str, letters))
