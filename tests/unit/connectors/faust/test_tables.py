"""Tables whose changelogs other workers write into, too; the broker is not asked."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from aiokafka.errors import KafkaConnectionError
from faust.types import TP

from walle_connectors.faust import tables
from walle_connectors.faust.device_row import DeviceRow, encode_row, is_older_row
from walle_connectors.faust.preflight import TopicShape
from walle_connectors.faust.settings import KafkaPart
from walle_connectors.faust.tables import TrackedTable, ack_when_sent, make_table

SHAPE = TopicShape(4, 1)


def test_tables_are_rocksdb_through_rocksdict(app):
    table = make_table(app, "rows", SHAPE)
    assert isinstance(table, TrackedTable)
    assert table.data.use_rocksdict
    assert (table.key_serializer, table.value_serializer) == ("raw", "raw")


def row(count):
    return encode_row(DeviceRow(counts=[count]))


@pytest.mark.parametrize(
    ("known", "changelog", "expected"),
    [(None, [1, 2], 2), (5, [3, 4], 5), (3, [4, 5], 5), (3, [5, 4], 5), (4, [4], 4)],
)
def test_recovery_never_goes_back(app, known, changelog, expected):
    table = make_table(app, "rows", SHAPE, is_older_row)
    disk = table.data._db_for_partition(2)
    if known is not None:
        disk[b"d"] = row(known)
    place = TP("rows", 2)
    batch = [
        SimpleNamespace(
            message=SimpleNamespace(
                key=b"d", value=row(count), partition=2, offset=offset, tp=place
            )
        )
        for offset, count in enumerate(changelog)
    ]
    table.apply_changelog_batch(batch)
    assert disk[b"d"] == row(expected)
    assert table.data.persisted_offset(place) == len(changelog) - 1
    table.data._dbs.clear()


@pytest.mark.parametrize(
    ("known", "sent", "expected"),
    [
        (None, [0, 1, 2], 2),
        (4, [5, 6], 6),
        # somebody else wrote 5, which is not on this disk
        (4, [6, 7], 4),
        (4, [5, 7, 8], 5),
        (4, [3, 4], 4),
        (None, [3], None),
    ],
)
def test_recovery_begins_where_somebody_else_wrote(app, known, sent, expected):
    table = make_table(app, "rows", SHAPE)
    place = TP("rows", 2)
    if known is not None:
        table.data.set_persisted_offset(place, known)
    for offset in sent:
        told = SimpleNamespace(topic_partition=place, offset=offset)
        table._on_changelog_sent(SimpleNamespace(result=lambda told=told: told))
    assert table.data.persisted_offset(place) == expected
    table.data._dbs.clear()


PLACE = TP("rows", 2)


class Sent:
    """What a table sends, with the offsets that the broker gives."""

    def __init__(self, app, table, others):
        self.app, self.table, self.records = app, table, []
        self.others, self.looked = others, []
        table.send_changelog = lambda *record: self.records.append(record)
        app.add_future = lambda coroutine: asyncio.get_event_loop().run_until_complete(coroutine)

    async def read(self, _part, _place, first, end):
        self.looked.append((first, end))
        for each in self.others:
            if isinstance(each, Exception):
                raise each
            yield each

    def at(self, offset):
        told = SimpleNamespace(topic_partition=PLACE, offset=offset)
        self.table._on_changelog_sent(SimpleNamespace(result=lambda: told))


@pytest.fixture
def older_rows(app, monkeypatch):
    part = KafkaPart(brokers="b:1", topic="t", tls={})
    table = make_table(app, "rows", SHAPE, is_older_row, part)
    disk = table.data._db_for_partition(2)
    disk[b"d"], disk[b"e"] = row(5), row(5)
    others = [(b"d", row(4)), (b"e", row(6)), (b"unknown", row(1)), (b"e", None)]
    sent = Sent(app, table, others)
    monkeypatch.setattr(tables, "read_changelog", sent.read)
    yield sent
    table.data._dbs.clear()


def test_rows_that_somebody_else_hides_are_written_again(older_rows, caplog):
    for offset in (0, 1, 4, 5):
        older_rows.at(offset)
    assert older_rows.looked == [(2, 4)]
    assert older_rows.records == [(2, b"d", row(5))]
    assert "wrote 1 older rows" in caplog.text
    older_rows.at(7)
    assert older_rows.looked[1:] == [(6, 7)]


def test_a_changelog_that_cannot_be_read_ends_nothing(older_rows, caplog):
    older_rows.others.insert(1, KafkaConnectionError("away"))
    older_rows.at(1)
    assert older_rows.records == [(2, b"d", row(5))]  # seen before
    assert "cannot be read: KafkaConnectionError: away" in caplog.text


@pytest.mark.parametrize(
    ("changelog", "again"), [([4, 3], [5]), ([4, 5], []), ([6, 3], [6]), ([3, 6], []), ([], [])]
)
def test_who_recovers_writes_what_is_hidden_again(older_rows, changelog, again):
    table = older_rows.table
    table.apply_changelog_batch(
        SimpleNamespace(
            message=SimpleNamespace(
                key=b"d", value=row(count), partition=2, offset=offset, tp=PLACE
            )
        )
        for offset, count in enumerate(changelog)
    )
    for _ in range(2):
        asyncio.get_event_loop().run_until_complete(table.on_recovery_completed({PLACE}, set()))
        assert older_rows.records == [(2, b"d", row(count)) for count in again]


def test_a_record_is_acknowledged_when_the_broker_has_what_it_caused():
    async def run():
        first, second = asyncio.Future(), asyncio.Future()
        table = SimpleNamespace(unsent=[first])
        app = SimpleNamespace(tables={"t": table})
        acked = []
        event = SimpleNamespace(ack=lambda: acked.append(True))
        ack_when_sent(app, event, second)
        assert table.unsent == []
        second.set_result(None)
        await asyncio.sleep(0)
        assert acked == []
        first.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert acked == [True]
        ack_when_sent(app, event)  # nothing to wait for
        assert acked == [True, True]

    asyncio.run(run())


def test_a_record_whose_row_cannot_be_sent_is_not_acknowledged_and_ends_the_app():
    async def run():
        sent, crashed = asyncio.Future(), []

        async def crash(error):
            crashed.append(error)

        app = SimpleNamespace(tables={}, crash=crash, add_future=asyncio.ensure_future)
        ack_when_sent(app, SimpleNamespace(ack=pytest.fail), sent)
        sent.set_exception(OSError("too large"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [str(each) for each in crashed] == ["too large"]

    asyncio.run(run())
