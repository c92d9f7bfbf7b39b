"""A message from the cloud to scripts: the payload of a downlink envelope of ``MESSAGE_KIND``.

The payload is a JSON object. ``value`` is any JSON value. ``task`` names the only task that gets
it, if not all do. ``where`` selects devices, and each device decides itself: ``device`` is a shell
pattern for its id, and ``task`` a task that it has, as NAME or NAME@VERSION.
"""

from typing import Final

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.payload import decoded
from walle_stream.wire.strict_json import value_problem

MESSAGE_KIND: Final = "message"

MESSAGE_MAX_BYTES: Final = 1_000_000
"""Largest payload; with key and headers, the record stays below 1 MiB."""

type Where = dict[str, str]
"""Conditions by name, ``device`` or ``task``."""

WHERE_KEYS: Final = ("device", "task")


class MessagePayload(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A message's value, with the conditions for its receivers."""

    value: msgspec.Raw
    task: str = ""
    where: Where = {}


_decoder = msgspec.json.Decoder(MessagePayload)


def encode_payload(payload: MessagePayload) -> bytes:
    """Encode a payload."""
    return msgspec.json.encode(payload)


def decode_payload(data: bytes) -> MessagePayload:
    """Decode an untrusted payload.

    Raises:
        EnvelopeError: The payload is malformed, or has an unknown condition.
    """
    payload = decoded(_decoder.decode, data, "a message")
    problem = value_problem(bytes(payload.value))
    unknown = sorted(payload.where.keys() - set(WHERE_KEYS))
    if unknown:
        problem = f"it has the condition {unknown[0]!r}, this side knows {', '.join(WHERE_KEYS)}"
    if problem is not None:
        raise EnvelopeError(f"a message is malformed: {problem}")
    return payload
