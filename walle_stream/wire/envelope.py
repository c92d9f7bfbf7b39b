"""Envelopes that the tunnel puts around bodies when it sends them.

The outbox holds bodies. The epoch belongs to the current sender, so a frame that
a new owner sends again carries the new epoch, for fencing at the receiver.

Up, version 3, little-endian: ``u8 'U'  u8 version  u32 partition  u64 epoch
8s incarnation  u64 number  BODY``. Down: ``u8 'D'  u8 version`` and a
MessagePack array (device, kind, payload, sender, number).
"""

from struct import Struct
from typing import Final

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.payload import decoded

ENVELOPE_VERSION: Final = 3
_UP: Final = Struct("<BBIQ8sQ")
_UP_MARK: Final = 0x55
_DOWN_MARK: Final = 0x44


class UplinkEnvelope(msgspec.Struct, gc=False):
    """A body on its way to the cloud."""

    partition: int
    epoch: int
    """Epoch of the partition's owner, which grows with every opening."""
    incarnation: str
    """Incarnation of the data directory, 16 hexadecimal digits."""
    number: int
    """Number of the frame in the partition's outbox."""
    body: bytes


class DownlinkEnvelope(msgspec.Struct, array_like=True):
    """A message on its way to a device."""

    device_id: str
    """Receiver; empty for every device of the partition."""
    kind: str
    payload: bytes
    """JSON."""
    sender: str = ""
    """Sender that gave the ``number``; empty if a repeated message does no harm."""
    number: int = 0
    """Ascending number of the sender's message to the partition, which reveals repetitions."""


def encode_uplink(envelope: UplinkEnvelope) -> bytes:
    """Encode an envelope."""
    return (
        _UP.pack(
            _UP_MARK,
            ENVELOPE_VERSION,
            envelope.partition,
            envelope.epoch,
            bytes.fromhex(envelope.incarnation),
            envelope.number,
        )
        + envelope.body
    )


def decode_uplink(data: bytes) -> UplinkEnvelope:
    """Decode an untrusted envelope.

    Raises:
        EnvelopeError: The envelope is truncated, or of another kind or version.
    """
    if len(data) < _UP.size:
        raise EnvelopeError(f"an uplink envelope of {len(data)} bytes is cut")
    mark, version, partition, epoch, incarnation, number = _UP.unpack_from(data)
    if mark != _UP_MARK or version != ENVELOPE_VERSION:
        raise EnvelopeError(
            f"an uplink envelope has mark {mark} and version {version}, this side reads "
            f"{_UP_MARK} and {ENVELOPE_VERSION}"
        )
    return UplinkEnvelope(partition, epoch, incarnation.hex(), number, data[_UP.size :])


def uplink_size_bytes(body: bytes) -> int:
    """Return the size of a body in its envelope, in bytes."""
    return _UP.size + len(body)


_down_encoder = msgspec.msgpack.Encoder()
_decode_down = msgspec.msgpack.Decoder(DownlinkEnvelope).decode


def encode_downlink(envelope: DownlinkEnvelope) -> bytes:
    """Encode a message for a device."""
    return bytes((_DOWN_MARK, ENVELOPE_VERSION)) + _down_encoder.encode(envelope)


def decode_downlink(data: bytes) -> DownlinkEnvelope:
    """Decode an untrusted message for a device.

    Raises:
        EnvelopeError: The message is truncated, or of another kind or version.
    """
    if data[:2] != bytes((_DOWN_MARK, ENVELOPE_VERSION)):
        raise EnvelopeError("a downlink message has another mark or version than this side reads")
    return decoded(_decode_down, data[2:], "a downlink message")
