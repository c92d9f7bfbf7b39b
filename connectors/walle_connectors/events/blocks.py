"""Cuts a file of packed events into whole blocks and damaged stretches.

Payloads are skipped, unless the caller asks for them.
"""

import os
import zlib
from typing import BinaryIO, Final

import msgspec

from walle_stream.errors import SourceFormatError
from walle_stream.ports import DeadLetterRoute
from walle_stream.wire.event_blocks import (
    BLOCK_HEAD_BYTES,
    FILE_HEAD_BYTES,
    HEADERS_MAX_BYTES,
    BlockHeaders,
    decode_file_head,
    decode_headers,
    try_decode_block_head,
)

CHUNK_BYTES: Final = 65_536
"""Bytes of a damaged stretch that are read at once, and kept."""


class Stretch(msgspec.Struct, kw_only=True):
    """Bytes that are not a block, or a block that cannot be decoded."""

    begin: int
    end: int
    """Start of the next block, or end of the file."""
    digest: tuple[int, int]
    """Length and CRC-32 of the bytes from ``begin`` on."""
    text: bytes
    """Its first ``CHUNK_BYTES`` at most."""
    route: DeadLetterRoute = "decode"
    reason: str
    is_cut: bool = False
    """Whether the file ends within it."""


class Block(msgspec.Struct, kw_only=True, gc=False):
    """A whole block."""

    begin: int
    end: int
    digest: tuple[int, int]
    """Of its head, which has the checksum of the fields for tasks."""
    text: bytes
    """Its head and headers."""
    headers: BlockHeaders
    payloads: list[bytes] | None
    """Payloads, or None if they were not asked for. A payload that is too long is empty."""

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.headers.events)

    @property
    def row_sizes(self) -> list[int]:
        """Bytes of each record: its payload and a share of the block's head and headers.

        The sum over all records is the size of the block.
        """
        share, more = divmod(len(self.text), self.count)
        return [share + (index < more) + size for index, size in enumerate(self.headers.sizes)]

    def raw_size(self, start: int, stop: int) -> int:
        """Return the size in bytes of some records; ``stop`` is exclusive."""
        if not start and stop == self.count:
            return self.end - self.begin
        return self._shares(stop) - self._shares(start) + sum(self.headers.sizes[start:stop])

    def raw_row(self, index: int) -> bytes:
        """Return a record's bytes: its share of head and headers, then its payload."""
        share = self.text[self._shares(index) : self._shares(index + 1)]
        return share + (self.payloads[index] if self.payloads else b"")

    def _shares(self, index: int) -> int:
        share, more = divmod(len(self.text), self.count)
        return share * index + min(index, more)


def check_file_head(data: bytes, name: str) -> bytes:
    """Return a file's marker.

    Raises:
        SourceFormatError: The head is damaged or of another version.
    """
    try:
        return decode_file_head(data[:FILE_HEAD_BYTES])
    except SourceFormatError as error:
        raise SourceFormatError(f"source {name!r} cannot be read: {error}") from error


class BlockFile:
    """Reads blocks one after the other. One thread; blocks on the disk."""

    def __init__(self, file: BinaryIO, name: str, max_record_bytes: int) -> None:
        """Read the head at the beginning of a file, which stays the caller's.

        Payloads over ``max_record_bytes`` are not kept. ``name`` is for messages.

        Raises:
            SourceFormatError: The head is damaged or of another version.
        """
        self._file = file
        self._max_bytes = max_record_bytes
        self._headers_max = max(max_record_bytes, HEADERS_MAX_BYTES)
        self._marker = check_file_head(file.read(FILE_HEAD_BYTES), name)
        self._ahead = b""  # bytes after the last block

    def seek(self, at: int) -> None:
        """Move to a byte position."""
        self._file.seek(max(at, FILE_HEAD_BYTES))
        self._ahead = b""

    def time_of(self, tail: bytes) -> int:
        """Return the last event's ingest time, from a file's last bytes; -1 if no block is whole.

        Any thread may call this.
        """
        begin = tail.rfind(self._marker)
        data = tail[begin:] if begin >= 0 else b""
        head = try_decode_block_head(data[:BLOCK_HEAD_BYTES], self._marker)
        if head is None:
            return -1
        try:
            headers = decode_headers(data[BLOCK_HEAD_BYTES:][: head.headers_bytes], head)
        except SourceFormatError:
            return -1
        return headers.events[-1].ingest_time_ms

    def is_same(self, begin: int, digest: tuple[int, int], end: int, *, is_cut: bool) -> bool:
        """Return whether a stretch that was read before is unchanged.

        It began at ``begin`` and ended at ``end`` or later. ``digest`` is length and CRC-32 of its
        bytes. ``is_cut`` means that the file ended there.
        """
        size, crc = digest
        self._file.seek(begin)
        if self._crc(size) != crc:
            return False
        if end > begin + size:
            self._file.seek(end - 1)
            return bool(self._file.read(1))
        return not (is_cut and self._file.read(1))

    def read(self, begin: int, *, has_payloads: bool) -> Block | Stretch | None:
        """Read the next block or stretch; None at the end.

        Raises:
            OSError: The file cannot be read; gzip raises others of ``READ_ERRORS``.
        """
        data, self._ahead = self._ahead, b""
        data += self._file.read(BLOCK_HEAD_BYTES - len(data))
        if not data:
            return None
        head = try_decode_block_head(data, self._marker)
        if head is None:
            return self._stretch(begin)
        # without the head's own checksum: including it makes every head's CRC-32 the same
        digest = (BLOCK_HEAD_BYTES - 4, zlib.crc32(data[:-4]))
        end = begin + BLOCK_HEAD_BYTES + head.headers_bytes + head.payloads_bytes
        if head.headers_bytes > self._headers_max:
            return self._broken(
                Stretch(
                    begin=begin,
                    end=end,
                    digest=digest,
                    text=data,
                    route="oversized",
                    reason=f"{head.headers_bytes} bytes of headers, at most {self._headers_max} "
                    "are allowed",
                )
            )
        found = self._file.read(head.headers_bytes)
        try:
            headers = decode_headers(found, head)
        except SourceFormatError as error:
            return self._broken(
                Stretch(begin=begin, end=end, digest=digest, text=data + found, reason=str(error))
            )
        payloads = self._payloads(headers.sizes) if has_payloads else None
        is_there = payloads is not None if has_payloads else self._pass(head.payloads_bytes, end)
        misplaced = self._look_behind(begin, end, is_there=is_there)
        if misplaced is not None:
            return misplaced
        return Block(
            begin=begin,
            end=end,
            digest=digest,
            text=data + found,
            headers=headers,
            payloads=payloads,
        )

    def _pass(self, size: int, end: int) -> bool:
        # read one byte, because a seek beyond the end succeeds
        if not size:
            return True
        self._file.seek(end - 1)
        return bool(self._file.read(1))

    def _payloads(self, sizes: tuple[int, ...]) -> list[bytes] | None:
        payloads = []
        for size in sizes:
            if size > self._max_bytes:
                self._file.seek(size - 1, os.SEEK_CUR)
                payloads.append(b"")
                is_there = bool(self._file.read(1))
            else:
                payloads.append(self._file.read(size))
                is_there = len(payloads[-1]) == size
            if not is_there:
                return None
        return payloads

    def _broken(self, stretch: Stretch) -> Stretch:
        stretch.text = stretch.text[:CHUNK_BYTES]
        self._file.seek(stretch.end - 1)
        is_there = bool(self._file.read(1))
        return self._look_behind(stretch.begin, stretch.end, is_there=is_there) or stretch

    def _look_behind(self, begin: int, end: int, *, is_there: bool) -> Stretch | None:
        # After a block, another one begins or the file ends. Otherwise the block may have lost
        # bytes, and the length in its head would swallow the next block, too.
        self._ahead = self._file.read(BLOCK_HEAD_BYTES) if is_there else b""
        if is_there and not self._ahead:
            return None
        if try_decode_block_head(self._ahead, self._marker) is not None:
            return None
        inner, _ = self._find_head(begin + BLOCK_HEAD_BYTES, end)
        if inner is None and is_there:
            self._file.seek(end + len(self._ahead))
            return None
        self._ahead = b""
        if inner is None:
            return self._cut(begin, end)
        reason = f"the block has lost bytes: the next one is at byte {inner}, not {end}"
        return self._described(begin, inner, reason)

    def _cut(self, begin: int, end: int) -> Stretch:
        # do not go as far as the block should: the file may grow meanwhile, and later bytes must
        # not be lost with this block
        self._file.seek(begin)
        at = begin
        while more := len(self._file.read(min(CHUNK_BYTES, end - 1 - at))):
            at += more
        return self._described(begin, at, "the block is cut: the file ends within it", is_cut=True)

    def _stretch(self, begin: int) -> Stretch:
        # sizes here cannot be trusted: continue at the next marker
        place, looked_to = self._find_head(begin + 1, None)
        if place is None:
            reason = "no block begins here, and none follows: damaged, or the file is cut"
            return self._described(begin, looked_to, reason, is_cut=True)
        reason = f"no block begins here: damaged; the next one is at byte {place}"
        return self._described(begin, place, reason)

    def _find_head(self, start: int, stop: int | None) -> tuple[int | None, int]:
        """Return the start of the first block from ``start`` on, and the end of the search."""
        self._file.seek(start)
        window, base, place = b"", start, 0
        while True:
            place = window.find(self._marker, place)
            if place < 0:
                kept = window[1 - len(self._marker) :]
                is_past = stop is not None and base + len(window) - len(kept) >= stop
                more = b"" if is_past else self._file.read(CHUNK_BYTES)
                if not more:
                    return None, base + len(window)
                base += len(window) - len(kept)
                window, place = kept + more, 0
                continue
            if stop is not None and base + place >= stop:
                return None, base + len(window)
            window += self._file.read(max(place + BLOCK_HEAD_BYTES - len(window), 0))
            head = window[place : place + BLOCK_HEAD_BYTES]
            if try_decode_block_head(head, self._marker) is not None:
                return base + place, base + len(window)
            place += 1

    def _described(self, begin: int, end: int, reason: str, *, is_cut: bool = False) -> Stretch:
        size = end - begin
        self._file.seek(begin)
        text = self._file.read(min(size, CHUNK_BYTES))
        self._file.seek(begin)
        return Stretch(
            begin=begin,
            end=end,
            digest=(size, self._crc(size)),
            text=text,
            reason=reason,
            is_cut=is_cut,
        )

    def _crc(self, size: int) -> int:
        crc = 0
        while size > 0 and (data := self._file.read(min(size, CHUNK_BYTES))):
            crc = zlib.crc32(data, crc)
            size -= len(data)
        return crc
