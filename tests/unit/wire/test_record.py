"""Records of a broker: what comes back, what is refused, and older records."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("value_format", ["json", "msgpack", "compact"])
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
        ("n", b"%d" % 2**63, "header 'n' is no number"),
        ("t", b"%d" % (-(2**63) - 1), "header 't' is no number"),
        ("ep", "\u0663".encode(), "header 'ep' is no number"),
        ("task", b"\xff", "no text"),
        ("ct", b"avro", "unknown format 'avro'"),
        ("ct", b"msgpack", "no JSON values as msgpack"),
        ("ct", b"compact", "no JSON values as compact"),
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
    with pytest.raises(EnvelopeError, match="no device"):
        decode_record(b"\xff", *STORED[1:])


@pytest.mark.parametrize("key", [b"", b"a\0b", b"x" * 1_025])
def test_a_key_that_is_no_device_is_refused(key):
    with pytest.raises(EnvelopeError, match="a record's key is no device: the device id"):
        decode_record(key, *STORED[1:])


def test_a_feature_that_is_no_json_cannot_travel_as_messagepack():
    with pytest.raises(EnvelopeError, match="no JSON"):
        encode_record(ENVELOPE, b"{", "msgpack")


@pytest.mark.parametrize("value_format", ["msgpack", "compact"])
def test_an_integer_beyond_64_bits_travels_as_json_only(value_format):
    with pytest.raises(EnvelopeError, match="64 bits"):
        encode_record(ENVELOPE, b"[%d]" % 2**70, value_format)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
devices = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)
envelopes = st.builds(
    RecordEnvelope,
    device_id=devices,
    incarnation=st.binary(min_size=8, max_size=8).map(bytes.hex),
    partition=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 2**63 - 1),
    sequence_number=st.integers(0, 2**63 - 1),
    task=texts,
    task_version=texts,
    event_time_ms=st.integers(-(2**62), 2**62),
    encoding=st.binary(max_size=20),
    service=texts,
    trace_parent=texts,
)


@given(envelopes, values, st.sampled_from(["json", "msgpack", "compact"]))
def test_any_record_comes_back(envelope, value, value_format):
    record = encode_record(envelope, msgspec.json.encode(value), value_format)
    found, given_back = decode_record(*record)
    assert found == envelope
    assert msgspec.json.decode(given_back) == value


@given(envelopes, st.data(), st.sampled_from(["msgpack", "compact"]))
def test_hostile_records_are_refused_or_read_as_json(envelope, data, value_format):
    key, value, headers = encode_record(envelope, VALUE, value_format)
    names = [name for name, _ in headers]
    changed = data.draw(st.dictionaries(st.sampled_from(names), st.none() | st.binary(max_size=30)))
    altered = bytearray(value)
    for _ in range(data.draw(st.integers(0, 3))):
        altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(altered[: data.draw(st.integers(0, len(altered)))])
    with suppress(EnvelopeError):
        found, text = decode_record(key, cut, [*headers, *changed.items()])
        assert found.device_id == envelope.device_id
        if dict([*headers, *changed.items()])["ct"] in {b"msgpack", b"compact"}:
            msgspec.json.decode(text)


def test_deep_nesting_is_refused_not_followed():
    key, _, headers = encode_record(ENVELOPE, b"{}", "msgpack")
    with pytest.raises(EnvelopeError, match="no JSON values as msgpack"):
        decode_record(key, b"\x91" * 100_000, headers)
    with pytest.raises(EnvelopeError, match="no JSON"):
        encode_record(ENVELOPE, b"[" * 100_000, "msgpack")
