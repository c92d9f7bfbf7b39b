"""Records of a broker: what comes back, what is refused, and records of before."""

import msgspec
import pytest

from walle_stream.errors import EnvelopeError
from walle_stream.wire.record import RecordEnvelope, decode_record, encode_record

ENVELOPE = RecordEnvelope(
    device_id="gerät-1",
    incarnation="0123456789abcdef",
    partition=3,
    epoch=(7 << 32) + 1,
    sequence_number=42,
    task="shop-ipv",
    task_version="1",
    event_time_ms=1_700_000_000_123,
    encoding=b"\x00\xff" * 64,
)
VALUE = b'{"item":"17","dwell_ms":1234,"clicks":[{"at_ms":5}],"depth":0.25,"none":null}'

# written by version 1 of the envelope; must be read for ever
STORED = (
    b"d1",
    b'{"a":1}',
    [
        ("v", b"1"),
        ("inc", b"00000000000000ff"),
        ("p", b"0"),
        ("ep", b"12"),
        ("n", b"1"),
        ("task", b"t"),
        ("tv", b"2"),
        ("t", b"-1"),
        ("ct", b"json"),
    ],
)


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
@pytest.mark.parametrize("changes", [{}, {"service": "ask", "encoding": b""}])
def test_what_was_sent_comes_back(value_format, changes):
    envelope = msgspec.structs.replace(ENVELOPE, trace_parent="00-ab-cd-01", **changes)
    key, value, headers = encode_record(envelope, VALUE, value_format)
    found, given = decode_record(key, value, headers)
    assert found == envelope
    assert msgspec.json.decode(given) == msgspec.json.decode(VALUE)
    assert (value == VALUE) == (value_format == "json")


def test_records_of_version_1_are_read():
    envelope, value = decode_record(*STORED)
    assert (envelope.device_id, envelope.epoch, envelope.event_time_ms) == ("d1", 12, -1)
    assert (value, envelope.encoding, envelope.service) == (b'{"a":1}', b"", "")
    packed = [*STORED[2][:-1], ("ct", b"msgpack")]
    assert decode_record(b"d1", b"\x81\xa1a\x01", packed)[1] == b'{"a":1}'


def test_unknown_headers_are_passed_over():
    key, value, headers = STORED
    assert decode_record(key, value, [*headers, ("later", b"\xff"), ("none", None)])


def test_a_record_has_one_key_however_often_it_is_delivered():
    keys = {
        ENVELOPE.idempotency_key,
        msgspec.structs.replace(ENVELOPE, epoch=9).idempotency_key,
    }
    assert keys == {"0123456789abcdef/gerät-1/42"}
    assert msgspec.structs.replace(ENVELOPE, service="ask").idempotency_key not in keys


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("v", b"2", "version 2, this side reads 1"),
        ("v", None, "version none"),
        ("inc", None, "lacks the header 'inc'"),
        ("n", b"one", "header 'n' is no number"),
        ("n", b"9" * 30, "header 'n' is no number"),
        ("ep", "\u0663".encode(), "header 'ep' is no number"),
        ("task", b"\xff", "no text"),
        ("ct", b"avro", "unknown format 'avro'"),
        ("ct", b"msgpack", "no MessagePack"),
    ],
)
def test_what_is_wrong_is_named(name, value, words):
    headers = [(key, value if key == name else each) for key, each in STORED[2]]
    with pytest.raises(EnvelopeError, match=words):
        decode_record(b"d1", b"\xc1", headers)


def test_a_record_without_key_or_value_is_refused():
    with pytest.raises(EnvelopeError, match="no key"):
        decode_record(None, *STORED[1:])
    with pytest.raises(EnvelopeError, match="no value"):
        decode_record(b"d1", None, STORED[2])
    with pytest.raises(EnvelopeError, match="no text"):
        decode_record(b"\xff", *STORED[1:])


def test_a_feature_that_is_no_json_cannot_travel_as_messagepack():
    with pytest.raises(EnvelopeError, match="no JSON"):
        encode_record(ENVELOPE, b"{", "msgpack")
