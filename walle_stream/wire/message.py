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

from walle_stream.errors import EnvelopeError
from walle_stream.wire.envelope import DownlinkEnvelope
from walle_stream.wire.record import Headers

MESSAGE_VERSION: Final = 1
"""Version of the envelope."""

_DIGITS_MAX: Final = 19


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
    """Read a record; the inverse of ``encode_message``.

    Args:
        key: The record's; not trusted, as the rest.
        value: The record's.
        headers: The record's; of one name the last counts.

    Raises:
        EnvelopeError: Something is missing, altered or of another version.
    """
    found = dict(headers)
    version = found.get("v")
    if version != b"%d" % MESSAGE_VERSION:
        raise EnvelopeError(
            f"a message has envelope version {(version or b'none').decode(errors='replace')}, "
            f"this side reads {MESSAGE_VERSION}: use the version of walle_stream that wrote it"
        )
    if key is None or value is None:
        raise EnvelopeError(f"a message has no {'key' if key is None else 'value'}")
    try:
        incarnation, number, kind = ((found.get(name) or b"").decode() for name in _NAMES)
        if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX):
            raise EnvelopeError(f"a message's header 'n' is no number: {number[:40]!r}")
        return DownlinkEnvelope(key.decode(), int(number), incarnation, kind, value)
    except UnicodeDecodeError as error:
        raise EnvelopeError(f"a message's key or header is no text: {error}") from error


_NAMES: Final = ("inc", "n", "kind")
