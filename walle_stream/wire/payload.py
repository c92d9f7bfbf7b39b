"""Common header of the bodies of all uplink frames: version, compression, checksum.

Layout, integers little-endian: ``u8 version  u8 codec  u32 size of the payload
u32 crc32 of the rest  PAYLOAD as coded``. The version gives the kind of payload:
``wire.frame``, ``wire.calls`` and ``wire.reports`` have one each.
"""

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec
import zstandard

from walle_stream.errors import EnvelopeError

BODY_MAX_BYTES: Final = 256 * 1024 * 1024
"""Largest payload that a receiver unpacks."""


class _Zstd(threading.local):
    # a compressor cannot be shared between threads, so each thread keeps its own: making one
    # takes about 8 us, twice the time to pack 1 KB
    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd: Final = _Zstd()
_HEADER: Final = Struct("<BBII")
_CODECS: Final = {"none": 0, "zlib": 1, "zstd": 2}


def pack_payload(version: int, payload: bytes, compression: str) -> bytes:
    """Compress a payload and put the header before it.

    The payload has at most ``BODY_MAX_BYTES``. The compression is ``zstd``, ``zlib`` or ``none``.

    Raises:
        EnvelopeError: The compression is unknown.
    """
    codec = _CODECS.get(compression)
    if codec is None:
        raise EnvelopeError(f"unknown compression {compression!r}: use {', '.join(_CODECS)}")
    if codec == _CODECS["zstd"]:
        packed = _zstd.compressor.compress(payload)
    elif codec == _CODECS["zlib"]:
        packed = zlib.compress(payload, 1)
    else:
        packed = payload
    return _HEADER.pack(version, codec, len(payload), zlib.crc32(packed)) + packed


def unpack_payload(version: int, body: bytes) -> bytes:
    """Check an untrusted body of a version, and return its payload.

    Raises:
        EnvelopeError: The body is truncated, altered or of another version.
    """
    if len(body) < _HEADER.size:
        raise EnvelopeError(f"a frame of {len(body)} bytes is cut")
    body_version, codec, size, checksum = _HEADER.unpack_from(body)
    if body_version != version:
        raise EnvelopeError(f"a frame has body version {body_version}, this side reads {version}")
    if size > BODY_MAX_BYTES:
        raise EnvelopeError(f"a frame claims {size} bytes, at most {BODY_MAX_BYTES} are allowed")
    packed = body[_HEADER.size :]
    if zlib.crc32(packed) != checksum:
        raise EnvelopeError("a frame was altered: its checksum does not match")
    try:
        if codec == _CODECS["zstd"]:
            payload = _inflated(packed, size)
        elif codec == _CODECS["zlib"]:
            unpacker = zlib.decompressobj()
            payload = unpacker.decompress(packed, size or 1)
        elif codec == _CODECS["none"]:
            payload = packed
        else:
            raise EnvelopeError(f"a frame has unknown compression {codec}")
    except (zstandard.ZstdError, zlib.error) as error:
        raise EnvelopeError(f"a frame cannot be decompressed: {error}") from error
    if len(payload) != size:
        raise EnvelopeError(f"a frame claims {size} bytes, but holds {len(payload)}")
    return payload


def decoded[T](decode: Callable[[bytes], T], data: bytes, what: str) -> T:
    """Decode untrusted bytes with a decoder of msgspec.

    Raises:
        EnvelopeError: The bytes, their texts or their depth are invalid; the error names ``what``.
    """
    try:
        return decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise EnvelopeError(f"{what} is malformed: {error}") from error


def cut_items[T](items: Sequence[T], sizes: Iterable[int], most: int) -> Iterator[Sequence[T]]:
    """Split items into parts, usually one, of total size ``most``; a larger item gets its own."""
    first = total = 0
    for index, size in enumerate(sizes):
        total += size
        if total > most and index > first:
            yield items[first:index]
            first, total = index, size
    if first < len(items):
        yield items[first:] if first else items


def _inflated(packed: bytes, size: int) -> bytes:
    # zstd trusts the size in the coded bytes more than max_output_size: 6 KB can make 200 MB
    if zstandard.frame_content_size(packed) not in {size, -1}:
        raise zstandard.ZstdError("its size is another one")
    return _zstd.decompressor.decompress(packed, max_output_size=size or 1)
