"""Features for Faust's users, from messages as Faust gives them."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from walle_connectors.faust.records import features
from walle_stream.wire.record import RecordEnvelope, encode_record
from walle_stream.wire.report_record import ReportRecord, encode_report_record

ENVELOPE = RecordEnvelope(
    device_id="d",
    incarnation="ab" * 8,
    partition=2,
    epoch=1,
    sequence_number=7,
    task="ipv",
    task_version="1",
    event_time_ms=5,
    encoding=b"e",
)


def event(key, value, headers):
    message = SimpleNamespace(key=key, value=value, topic="t", partition=2, offset=3)
    return SimpleNamespace(message=message, headers=dict(headers))


def read(*events):
    class Stream:
        async def events(self):
            for each in events:
                yield each

    async def collect():
        return [each async for each in features(Stream())]

    return asyncio.run(collect())


def test_features_are_typed_records():
    [found] = read(event(*encode_record(ENVELOPE, b'{"item":"i"}', "compact")))
    assert (found.device_id, found.sequence_number, found.task) == ("d", 7, "ipv")
    assert (found.feature, found.encoding, found.event_time_ms) == ({"item": "i"}, b"e", 5)
    assert found.key == ENVELOPE.idempotency_key


def test_what_is_no_feature_is_passed_over(caplog):
    ask = RecordEnvelope(**{name: getattr(ENVELOPE, name) for name in ENVELOPE.__struct_fields__})
    ask.service = "rank"
    report = encode_report_record(ReportRecord("ab" * 8, 2, 1, 7, b"\x05"))
    foreign = event(b"d", b"{}", [])
    [found] = read(
        event(*encode_record(ask, b"{}")),
        event(*report),
        foreign,
        event(*encode_record(ENVELOPE, b"{}")),
    )
    assert found.feature == {}
    assert "t[2]@3 is not a feature" in caplog.text
