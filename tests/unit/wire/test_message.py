"""Messages to devices as records of a broker: what comes back, what is refused, and old ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.errors import EnvelopeError
from walle_stream.wire.envelope import DownlinkEnvelope
from walle_stream.wire.message import decode_message, encode_message

# written by version 2 of the envelope; must be read for ever
STORED = (
    b"d1",
    b'{"a":1}',
    [("v", b"2"), ("kind", b"message"), ("from", b"campaign"), ("n", b"7")],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


devices = texts.filter(lambda text: "\0" not in text)


@given(st.just("") | devices, st.integers(0, 2**62), st.just("") | texts, texts, st.binary())
def test_what_was_sent_comes_back(device, number, sender, kind, payload):
    envelope = DownlinkEnvelope(device, kind, payload, sender, number if sender else 0)
    assert decode_message(*encode_message(envelope)) == envelope


def test_messages_of_version_2_are_read_whatever_else_they_have():
    envelope = DownlinkEnvelope("d1", "message", b'{"a":1}', "campaign", 7)
    key, value, headers = STORED
    assert decode_message(key, value, [*headers, ("later", b"\xff"), ("none", None)]) == envelope


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("v", b"1", "version 1, this side reads 2"),
        ("v", None, "version none"),
        ("n", b"one", "'n' is no number"),
        ("n", b"-1", "'n' is no number"),
        ("n", b"9" * 30, "'n' is no number"),
        ("n", None, "lacks the header 'n'"),
        ("from", b"\xff", "no text"),
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
    with pytest.raises(EnvelopeError, match="no device"):
        decode_message(b"\xff", *STORED[1:])
    assert decode_message(b"", *STORED[1:]).device_id == ""  # for all


@given(
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
    st.lists(st.tuples(st.sampled_from(["v", "from", "n", "kind"]), st.binary(max_size=3))),
)
def test_foreign_bytes_are_refused_or_read(key, value, headers):
    with suppress(EnvelopeError):
        decode_message(key, value, [("v", b"2"), *headers])
