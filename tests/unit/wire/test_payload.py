import msgspec
import pytest

from walle_stream.errors import EnvelopeError
from walle_stream.wire.calls import CALLS_VERSION, decode_calls, decode_reply
from walle_stream.wire.envelope import DownlinkEnvelope, decode_downlink, encode_downlink
from walle_stream.wire.frame import BODY_VERSION, decode_body
from walle_stream.wire.payload import cut_items, pack_payload

CALL = msgspec.msgpack.encode([("x", 1, "task", "v1", "service", b"{}")])
FEATURE = msgspec.msgpack.encode([("x", "task", "v1", 1, b"{}", b"", -1)])
MESSAGE = encode_downlink(DownlinkEnvelope("x", 1, "0" * 16, "reply", b"{}"))


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_body, pack_payload(BODY_VERSION, FEATURE.replace(b"x", b"\xff"), "none")),
        (decode_calls, pack_payload(CALLS_VERSION, CALL.replace(b"x", b"\xff"), "none")),
        (decode_downlink, MESSAGE.replace(b"x", b"\xff")),
        (decode_reply, b'{"number":1,"incarnation":"\xff","digest":""}'),
        (decode_reply, b"[" * 100_000),
    ],
)
def test_what_is_no_text_or_too_deep_is_malformed(decode, data):
    with pytest.raises(EnvelopeError, match="malformed"):
        decode(data)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([1, 2], [[0, 1]]),
        ([3, 1], [[0], [1]]),
        ([9, 1, 2, 9], [[0], [1, 2], [3]]),
    ],
)
def test_items_are_cut_where_they_are_too_much(sizes, parts):
    items = list(range(len(sizes)))
    assert list(cut_items(items, sizes, 3)) == parts
