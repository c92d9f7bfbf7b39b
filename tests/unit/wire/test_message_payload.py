import msgspec
import pytest

from walle_stream.errors import EnvelopeError
from walle_stream.wire.message_payload import MessagePayload, decode_payload, encode_payload


@pytest.mark.parametrize(
    "payload",
    [
        MessagePayload(msgspec.Raw(b"null")),
        MessagePayload(msgspec.Raw(b'{"a":[1,2.5]}'), "task", {"device": "a*", "task": "t@1"}),
    ],
)
def test_a_payload_is_read_as_it_was_written(payload):
    found = decode_payload(encode_payload(payload))
    assert (bytes(found.value), found.task, found.where) == (
        bytes(payload.value), payload.task, payload.where,
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [b"", b"1", b"{}", b'{"value":1,"more":2}', b'{"value":1,"where":{"os":"a"}}',
     b'{"value":1,"where":{"task":1}}', b'{"value":{"k":1,"k":2}}', b'{"value":"\xff"}',
     *(b'{"value":' + b"[" * deep + b"]" * deep + b"}" for deep in (300, 20_000))],
)  # fmt: skip
def test_what_is_malformed_or_of_a_later_version_is_refused(data):
    with pytest.raises(EnvelopeError, match="a message is malformed"):
        decode_payload(data)
