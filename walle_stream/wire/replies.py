"""Replies to calls, on their way down.

The payload of a downlink envelope of kind ``REPLY_KIND``: a JSON object of
``CloudReply``.
"""

from typing import Final

import msgspec

from walle_stream.errors import EnvelopeError

REPLY_KIND: Final = "reply"
"""Kind of a downlink envelope that holds a reply."""


class CloudReply(msgspec.Struct, omit_defaults=True):
    """The answer to a call."""

    number: int
    incarnation: str
    """Of the data directory that made the call."""
    digest: str
    error: str = ""
    """Why there is no answer."""
    value: msgspec.Raw = msgspec.Raw(b"null")
    """JSON."""


_reply_decoder = msgspec.json.Decoder(CloudReply)


def encode_reply(reply: CloudReply) -> bytes:
    """Encode a reply."""
    return msgspec.json.encode(reply)


def decode_reply(payload: bytes) -> CloudReply:
    """Decode a reply, the payload of an envelope, not trusted.

    Raises:
        EnvelopeError: It is none.
    """
    try:
        return _reply_decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise EnvelopeError(f"a reply is malformed: {error}") from error
