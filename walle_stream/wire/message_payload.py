"""A message from the cloud to scripts: the payload of a downlink envelope of ``MESSAGE_KIND``.

A JSON object: ``value``, any JSON value; ``task``, the one that gets it where not all do;
``where``, on which devices, decided there: ``device``, a pattern of shells for its id, and
``task``, a task that it has, as NAME or NAME@VERSION.
"""

from typing import Final

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.payload import decoded
from walle_stream.wire.strict_json import value_problem

MESSAGE_KIND: Final = "message"

MESSAGE_MAX_BYTES: Final = 1_000_000
"""Largest payload: with key and headers it is a record of less than 1 MiB."""

type Where = dict[str, str]
"""Conditions by name, ``device`` or ``task``."""

WHERE_KEYS: Final = ("device", "task")


class MessagePayload(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What is sent, and to whom of those whom it reaches."""

    value: msgspec.Raw
    task: str = ""
    where: Where = {}


_decoder = msgspec.json.Decoder(MessagePayload)


def encode_payload(payload: MessagePayload) -> bytes:
    """Encode a payload."""
    return msgspec.json.encode(payload)


def decode_payload(data: bytes) -> MessagePayload:
    """Decode a payload, not trusted.

    Raises:
        EnvelopeError: It is malformed, or has a condition that is not known here.
    """
    payload = decoded(_decoder.decode, data, "a message")
    problem = value_problem(bytes(payload.value))
    unknown = sorted(payload.where.keys() - set(WHERE_KEYS))
    if unknown:
        problem = f"it has the condition {unknown[0]!r}, this side knows {', '.join(WHERE_KEYS)}"
    if problem is not None:
        raise EnvelopeError(f"a message is malformed: {problem}")
    return payload
