import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.errors import EnvelopeError
from walle_stream.wire import frame
from walle_stream.wire.envelope import (
    DownlinkEnvelope,
    UplinkEnvelope,
    decode_downlink,
    decode_uplink,
    encode_downlink,
    encode_uplink,
)
from walle_stream.wire.frame import FeatureRecord, decode_body, encode_body
from walle_stream.wire.payload import pack_payload

records = st.lists(
    st.builds(
        FeatureRecord,
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        st.sampled_from(["ipv", "intent", "é"]),
        st.sampled_from(["1", "2"]),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=200),
        st.binary(max_size=130),
        st.integers(-1, 2**63 - 1),
    ),
    max_size=20,
)
RECORDS = [
    FeatureRecord(f"d{n // 2}", "ipv", "1", n, b'{"n":%d}' % n, b"e" * 128) for n in range(9)
]


@given(records, st.sampled_from(["zstd", "zlib", "none"]))
def test_what_is_encoded_is_decoded(found, compression):
    assert decode_body(encode_body(found, compression)) == found


@given(st.sampled_from(["zstd", "zlib", "none"]), st.data())
def test_altered_bytes_are_refused_or_harmless(compression, data):
    body = bytearray(encode_body(RECORDS, compression))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for altered in (bytes(body), bytes(body[:cut])):
        try:
            decoded = decode_body(altered)
        except EnvelopeError:
            continue
        assert decoded == RECORDS


def test_a_frame_that_claims_too_much_is_refused():
    body = bytearray(encode_body(RECORDS, "zstd"))
    body[2:6] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(EnvelopeError, match="claims"):
        decode_body(bytes(body))


def test_an_unknown_version_or_compression_is_refused():
    body = encode_body(RECORDS, "none")
    with pytest.raises(EnvelopeError, match="version 9"):
        decode_body(b"\x09" + body[1:])
    with pytest.raises(EnvelopeError, match="unknown compression 'lzma'"):
        encode_body(RECORDS, "lzma")


@given(
    st.builds(
        UplinkEnvelope,
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
        st.binary(min_size=8, max_size=8).map(bytes.hex),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=50),
    )
)
def test_an_uplink_envelope_survives(envelope):
    assert decode_uplink(encode_uplink(envelope)) == envelope


@given(st.binary(max_size=60))
def test_foreign_bytes_are_refused(data):
    for decode in (decode_uplink, decode_downlink):
        with pytest.raises(EnvelopeError):
            decode(b"\x00" + data)


def test_a_downlink_envelope_survives():
    envelope = DownlinkEnvelope("d", "message", b'{"a":1}', "campaign", 3)
    assert decode_downlink(encode_downlink(envelope)) == envelope


def test_a_commit_that_is_too_large_for_a_frame_becomes_several(monkeypatch):
    monkeypatch.setattr(frame, "FRAME_BYTES", 100)
    sizes = [10, 80, 20, 300, 5, 5, 95]
    records = [FeatureRecord("d", "t", "1", n, b"x" * size, b"") for n, size in enumerate(sizes)]
    parts = list(frame.split_records(records))
    assert [[len(r.feature) for r in part] for part in parts] == [
        [10, 80],
        [20],
        [300],
        [5, 5],
        [95],
    ]
    assert [r for part in parts for r in frame.decode_body(encode_body(part, "zstd"))] == records
    assert list(frame.split_records([])) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x90\x90",
        msgspec.msgpack.encode([["d", "t", "1", -1, b"", b""]]),
        msgspec.msgpack.encode([["d", "t", "1", 1, b""]]),
        msgspec.msgpack.encode([["d", "t", "1", 1, b"", b"", 1, 1]]),
        msgspec.msgpack.encode([["d", "t", "1", 1, b"", b"", "1"]]),
        msgspec.msgpack.encode([["d", "t", "1", 1, "text", b""]]),
        msgspec.msgpack.encode([[b"\xff", "t", "1", 1, b"", b""]]),
        msgspec.msgpack.encode({"d": 1}),
    ],
)
def test_a_payload_of_something_else_is_refused(payload):
    with pytest.raises(EnvelopeError, match="malformed"):
        decode_body(pack_payload(frame.BODY_VERSION, payload, "none"))
