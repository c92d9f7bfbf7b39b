"""One message to a device as one record of a broker's topic: key, headers, value.

The key is the device, the value the payload, JSON. Headers, as text::

    v      version of this envelope
    inc    incarnation of the cloud side that numbered it, 16 hexadecimal digits
    n      sequence number of the device, contiguous from 1 per incarnation
    kind   what it is, for the receiver

The rules of change are those of ``wire.record``.
"""

from collections.abc import Iterable
from typing import Final

from walle_stream.wire.envelope import DownlinkEnvelope
from walle_stream.wire.headers import Headers, read_headers

MESSAGE_VERSION: Final = 1


def encode_message(envelope: DownlinkEnvelope) -> tuple[bytes, bytes, Headers]:
    """Make a record: key, value, headers."""
    return (
        envelope.device_id.encode(),
        envelope.payload,
        [
            ("v", b"%d" % MESSAGE_VERSION),
            ("inc", envelope.incarnation.encode()),
            ("n", b"%d" % envelope.sequence_number),
            ("kind", envelope.kind.encode()),
        ],
    )


def decode_message(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> DownlinkEnvelope:
    """Read a record, not trusted; the inverse of ``encode_message``.

    Of headers of one name the last counts.

    Raises:
        EnvelopeError: Something is missing, altered or of another version.
    """
    device, payload, texts = read_headers("message", MESSAGE_VERSION, key, value, headers)
    number = texts.number("n", is_signed=False)
    return DownlinkEnvelope(device, number, texts.text("inc"), texts.text("kind"), payload)
