"""Calls of services in the cloud on their way up, and replies on their way down.

A frame of calls is a body of version 2: behind the header of ``wire.payload`` a
MessagePack array of ``CloudCall``. A reply is the payload of a downlink envelope of kind
``REPLY_KIND``: a JSON object of ``CloudReply``.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from walle_stream.wire.frame import FRAME_BYTES
from walle_stream.wire.payload import cut_items, decoded, pack_payload, unpack_payload

CALLS_VERSION: Final = 2
REPLY_KIND: Final = "reply"
"""Kind of a downlink envelope that holds a reply."""


class CloudCall(msgspec.Struct, array_like=True, gc=False):
    """A question of one task on one device."""

    device_id: str
    number: int
    """Number of the device's call, contiguous from 1 per incarnation."""
    task: str
    task_version: str
    service: str
    """Name of the called service."""
    question: bytes
    """JSON object made in a guest; not trusted."""

    @property
    def digest(self) -> str:
        """Digest of the question without the task's version: 16 hexadecimal digits.

        A device that lost data in a power cut may reuse a number for another question.
        """
        fields = (self.device_id, self.number, self.task, self.service, self.question)
        return blake2b(msgspec.msgpack.encode(fields), digest_size=8).hexdigest()


class OpenCall(msgspec.Struct, array_like=True):
    """A call that waits in the cloud's store."""

    incarnation: str
    """Incarnation of the caller's data directory."""
    call: CloudCall
    partition: int
    """Partition of the sender, which gets the reply."""


class CloudReply(msgspec.Struct, omit_defaults=True):
    """The answer to a call."""

    number: int
    incarnation: str
    """Incarnation of the data directory that made the call."""
    digest: str
    error: str = ""
    """Reason for a missing answer."""
    value: msgspec.Raw = msgspec.Raw(b"null")
    """JSON."""

    def without_value(self) -> "CloudReply":
        """Return a reply with the error that this one is too large to travel."""
        error = f"ValueError: the answer has {len(self.value)} bytes, more than the tunnel takes"
        return CloudReply(self.number, self.incarnation, self.digest, error)


_decode_calls = msgspec.msgpack.Decoder(list[CloudCall]).decode
_decode_reply = msgspec.json.Decoder(CloudReply).decode


def encode_calls(calls: Sequence[CloudCall], compression: str) -> Iterator[bytes]:
    """Encode calls, in ascending numbers for each device, into bodies, usually one."""
    for part in cut_items(calls, [len(call.question) for call in calls], FRAME_BYTES):
        yield pack_payload(CALLS_VERSION, msgspec.msgpack.encode(part), compression)


def decode_calls(body: bytes) -> list[CloudCall] | None:
    """Decode an untrusted body that may hold calls; None if it is of another version.

    Raises:
        EnvelopeError: The body is truncated or altered.
    """
    if body[:1] != bytes((CALLS_VERSION,)):
        return None
    return decoded(_decode_calls, unpack_payload(CALLS_VERSION, body), "a frame of calls")


def encode_reply(reply: CloudReply) -> bytes:
    """Encode a reply."""
    return msgspec.json.encode(reply)


def decode_reply(payload: bytes) -> CloudReply:
    """Decode a reply, the untrusted payload of an envelope.

    Raises:
        EnvelopeError: The payload is not a reply.
    """
    return decoded(_decode_reply, payload, "a reply")
