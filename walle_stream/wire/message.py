"""One message to a device as one record of a broker's topic: key, headers, value.

The key is the device, the value the payload, JSON. Headers, as text::

    v      version of this envelope
    kind   kind of the message, for the receiver
    from   sender of the number; missing if a repeated message does no harm
    n      ascending number of the sender's message to the partition

The key is empty for a message to every device of the partition.

The rules for changes are those of ``wire.record``.
"""

from collections.abc import Iterable
from typing import Final

from walle_stream.wire.envelope import DownlinkEnvelope
from walle_stream.wire.headers import Headers, read_headers

MESSAGE_VERSION: Final = 2


def encode_message(envelope: DownlinkEnvelope) -> tuple[bytes, bytes, Headers]:
    """Make a record: key, value, headers."""
    headers: Headers = [("v", b"%d" % MESSAGE_VERSION), ("kind", envelope.kind.encode())]
    if envelope.sender:
        headers += [("from", envelope.sender.encode()), ("n", b"%d" % envelope.number)]
    return envelope.device_id.encode(), envelope.payload, headers


def decode_message(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> DownlinkEnvelope:
    """Decode an untrusted record; the inverse of ``encode_message``.

    The last header of a name counts.

    Raises:
        EnvelopeError: A part is missing, altered or of another version.
    """
    device, payload, texts = read_headers(
        "message", MESSAGE_VERSION, key, value, headers, has_device=bool(key)
    )
    kind, sender = texts.text("kind"), texts.text("from", "")
    number = texts.number("n", is_signed=False) if sender else 0
    return DownlinkEnvelope(device, kind, payload, sender, number)
