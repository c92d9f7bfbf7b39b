"""Batches of report frames, which are posted to a service that counts them.

A batch is a MessagePack array of (incarnation, partition, number, body): the fields of
``ports.ReportFrame``.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.payload import decoded

BATCH_MAX_BYTES: Final = 32 * 1024 * 1024
"""Largest batch; a server should not read larger requests."""

REPORTS_PATH: Final = "/v1/reports"
"""Path at which a service takes batches by POST; any 2xx answer means that they are stored."""

type _Fields = tuple[str, int, int, bytes]

_Frame = tuple[
    Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")],
    Annotated[int, msgspec.Meta(ge=0, le=2**31)],
    Annotated[int, msgspec.Meta(ge=0, le=2**62)],
    bytes,
]
_decode: Final = msgspec.msgpack.Decoder(list[_Frame]).decode


def encode_batch(frames: Iterable[_Fields]) -> bytes:
    """Encode frames of one partition in order."""
    return msgspec.msgpack.encode([tuple(frame) for frame in frames])


def decode_batch(batch: bytes) -> list[_Fields]:
    """Decode an untrusted batch, but not its bodies.

    Raises:
        EnvelopeError: The bytes are not a batch, or too large.
    """
    if len(batch) > BATCH_MAX_BYTES:
        raise EnvelopeError(
            f"a batch has {len(batch)} bytes, at most {BATCH_MAX_BYTES} are allowed"
        )
    return decoded(_decode, batch, "a batch of reports")
