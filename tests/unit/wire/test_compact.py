"""MessagePack without repeated strings: what comes back, what it saves, what is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.errors import EnvelopeError
from walle_stream.wire.compact import decode_compact, encode_compact

pack = msgspec.msgpack.encode
texts = st.sampled_from(["item", "at_ms", "page_scroll", "", "ab", "gerät"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


@given(values)
def test_any_value_comes_back(value):
    assert decode_compact(encode_compact(value)) == value


@given(values)
def test_it_is_never_longer_than_messagepack(value):
    assert len(encode_compact(value)) <= len(pack(value))


def test_what_came_before_is_a_number_as_a_key_and_a_byte_as_a_value():
    # written by the first version of the format; must be read for ever
    stored = pack([{"item": "page", "at_ms": 1}, {0: b"\x01", 2: 2}, b"\x02"])
    rows = [{"item": "page", "at_ms": 1}, {"item": "page", "at_ms": 2}, "at_ms"]
    assert encode_compact(rows) == stored
    assert decode_compact(stored) == rows


def test_strings_beyond_the_first_128_are_written_out():
    names = [f"name-{number}" for number in range(200)]
    data = encode_compact([names, names])
    assert decode_compact(data) == [names, names]
    assert data.count(b"name-150") == 2
    assert data.count(b"name-100") == 1


@pytest.mark.parametrize(
    "value",
    [
        {0: 1},
        [b"\x00"],
        ["item", b"\x01"],
        ["item", b""],
        ["item", b"\x00\x00"],
        ["item", {-1: 2}],
        ["item", {0.0: 2}],
        ["item", {False: 2}],
        ["item", {None: 2}],
        [msgspec.msgpack.Ext(3, b"x")],
        [msgspec.Raw(b"\xd6\xff\x00\x00\x00\x00")],  # MessagePack's timestamp
    ],
)
def test_what_json_has_not_is_refused(value):
    with pytest.raises(EnvelopeError):
        decode_compact(pack(value))
