"""Messages to devices as records of a broker: what comes back, what is refused, and old ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.errors import EnvelopeError
from walle_stream.wire.envelope import DownlinkEnvelope
from walle_stream.wire.message import decode_message, encode_message

# written by version 1 of the envelope; must be read for ever
STORED = (
    b"d1",
    b'{"a":1}',
    [("v", b"1"), ("inc", b"00000000000000ff"), ("n", b"7"), ("kind", b"reply")],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


devices = texts.filter(lambda text: "\0" not in text)


@given(devices, st.integers(0, 2**62), st.binary(min_size=8, max_size=8), texts, st.binary())
def test_what_was_sent_comes_back(device, number, incarnation, kind, payload):
    envelope = DownlinkEnvelope(device, number, incarnation.hex(), kind, payload)
    assert decode_message(*encode_message(envelope)) == envelope


def test_messages_of_version_1_are_read_whatever_else_they_have():
    envelope = DownlinkEnvelope("d1", 7, "00000000000000ff", "reply", b'{"a":1}')
    key, value, headers = STORED
    assert decode_message(key, value, [*headers, ("later", b"\xff"), ("none", None)]) == envelope


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("v", b"2", "version 2, this side reads 1"),
        ("v", None, "version none"),
        ("n", b"one", "'n' is no number"),
        ("n", b"-1", "'n' is no number"),
        ("n", b"9" * 30, "'n' is no number"),
        ("n", None, "lacks the header 'n'"),
        ("inc", None, "lacks the header 'inc'"),
        ("kind", None, "lacks the header 'kind'"),
        ("kind", b"\xff", "no text"),
    ],
)
def test_what_is_wrong_is_named(name, value, words):
    headers = [(key, value if key == name else each) for key, each in STORED[2]]
    with pytest.raises(EnvelopeError, match=words):
        decode_message(*STORED[:2], headers)


def test_a_message_without_key_or_value_is_refused():
    with pytest.raises(EnvelopeError, match="no key"):
        decode_message(None, *STORED[1:])
    with pytest.raises(EnvelopeError, match="no value"):
        decode_message(b"d1", None, STORED[2])
    with pytest.raises(EnvelopeError, match="no text"):
        decode_message(b"\xff", *STORED[1:])
    with pytest.raises(EnvelopeError, match="a message's key is no device"):
        decode_message(b"", *STORED[1:])


@given(
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
    st.lists(st.tuples(st.sampled_from(["v", "inc", "n", "kind"]), st.binary(max_size=3))),
)
def test_foreign_bytes_are_refused_or_read(key, value, headers):
    with suppress(EnvelopeError):
        decode_message(key, value, [("v", b"1"), *headers])
