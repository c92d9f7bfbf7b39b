"""The body of an uplink frame: the features of one commit of one partition.

Layout version 4, behind the header of ``wire.payload``, is a MessagePack array with an
array per feature::

    [device id, task, version of the task, sequence number, feature, encoding, event time, trace]

Names are repeated, because compression removes repetitions, and one call of the encoder
costs less than any layout made in Python. (Version 2 is for calls.)
Features are JSON bytes made in the guest; this module does not parse them.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from walle_stream.wire.payload import cut_items, decoded, pack_payload, unpack_payload

BODY_VERSION: Final = 4
FRAME_BYTES: Final = 16 * 1024 * 1024
"""Size of a frame; further features of a commit go into another frame."""


class FeatureRecord(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """One feature of one device in a frame."""

    device_id: str
    task: str
    task_version: str
    sequence_number: Annotated[int, msgspec.Meta(ge=0)]
    """Number of the device's feature, contiguous from 1 per incarnation."""
    feature: bytes
    """JSON object."""
    encoding: bytes
    """Fixed-size encoding beside the feature; may be empty."""
    event_time_ms: int = -1
    """Time of the event that woke the task, on the device's clock; -1 if unknown."""
    trace: str = ""
    """Trace context of the record that woke the task; empty without tracing."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[FeatureRecord]).decode


def split_records(records: Sequence[FeatureRecord]) -> Iterator[Sequence[FeatureRecord]]:
    """Split the features of a commit into parts, usually one, that each fit into a frame."""
    sizes = [len(record.feature) + len(record.encoding) for record in records]
    return cut_items(records, sizes, FRAME_BYTES)


def encode_body(records: Sequence[FeatureRecord], compression: str) -> bytes:
    """Encode a commit's features, grouped by device, in ascending sequence numbers.

    The compression is ``zstd``, ``zlib`` or ``none``.

    Raises:
        EnvelopeError: The compression is unknown.
    """
    return pack_payload(BODY_VERSION, _encode(records), compression)


def decode_body(body: bytes) -> list[FeatureRecord]:
    """Decode an untrusted body; the inverse of ``encode_body``.

    Raises:
        EnvelopeError: The body is truncated, altered or of another version.
    """
    return decoded(_decode, unpack_payload(BODY_VERSION, body), "a frame's payload")
