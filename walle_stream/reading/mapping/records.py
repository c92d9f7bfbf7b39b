"""Cutting of a byte stream into records, in bounded memory, and of records into rows.

``CsvRecords`` and ``JsonRecords`` yield one ``Record`` per row. The values of an
unreadable row are a ``BrokenRow``, so that a broken line never ends the source.
They hold at most the bound of one record, however long a line is. ``JsonRows`` and
``csv_decoder`` are for records that come one by one, like those of a topic.

A quoted CSV field may span lines. If its record is broken, or does not end within
the bound, only the first line is broken. The lines after it are read again, so that
a stray quote costs one row and not the rest of the file.
"""

import csv
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from io import BytesIO
from typing import Any, BinaryIO, Final

import msgspec

from walle_stream.ports import DeadLetterRoute
from walle_stream.reading.dead_letters import DECODE_ERRORS
from walle_stream.reading.mapping.layout import JsonLayout

_CHUNK_BYTES: Final = 65_536
_DIGEST_BYTES: Final = 16
_BLANK_BYTES: Final = 3


class BrokenRow(msgspec.Struct, frozen=True):
    """Reason in place of the values of an unreadable row."""

    route: DeadLetterRoute
    reason: str
    error: str = ""
    """Class of the exception, when there was one."""
    digest: str = ""
    """Digest of the whole record, if only a part of it was held."""


type Row = tuple[Any, int]
"""Values or ``BrokenRow``; index in the exploded list from 0, or -1."""

type Record = tuple[Any, int, bytes, int, int]
"""Values or ``BrokenRow``; bytes taken from the source; text (the beginning of a
record that is too long); line number from 1; index in the exploded list from 0, or -1."""


class _Lines:
    """Physical lines with a bound, which can take back lines that were read ahead."""

    __slots__ = ("_readline", "_returned", "max_bytes", "number")

    def __init__(self, stream: BinaryIO, max_bytes: int) -> None:
        self.number = 0
        self.max_bytes = max_bytes
        self._readline = stream.readline
        self._returned: deque[bytes] = deque()

    def next(self) -> bytes:
        """Return the next line, b"" at the end; of a line over the bound only a part."""
        self.number += 1
        if self._returned:
            return self._returned.popleft()
        return self._readline(self.max_bytes + 1)

    def give_back(self, lines: list[bytes]) -> None:
        """Undo the reading of these lines."""
        self._returned.extendleft(reversed(lines))
        self.number -= len(lines)

    def oversized(self, line: bytes) -> Record:
        """Skip the rest of a line that is too long."""
        digest = blake2b(line, digest_size=_DIGEST_BYTES)
        size = len(line)
        part = line
        while part and not part.endswith(b"\n"):
            part = self._readline(_CHUNK_BYTES)
            digest.update(part)
            size += len(part)
        reason = f"the record has {size} bytes, at most {self.max_bytes} are allowed"
        row = BrokenRow("oversized", reason, digest=digest.hexdigest())
        return row, size, line[:_CHUNK_BYTES], self.number, -1


class CsvRecords:
    """Rows of a CSV stream as lists of texts."""

    def __init__(self, stream: BinaryIO, delimiter: str, quote: str, max_bytes: int) -> None:
        """Begin at the position of a stream of decompressed bytes with a bounded ``readline``.

        An empty ``quote`` turns quoting off. ``max_bytes`` includes line ends.
        """
        self._lines = _Lines(stream, max_bytes)
        self._delimiter = delimiter
        self._quote = quote.encode()
        self._feed = _Feed(self._lines)
        # the csv module's limit is process-wide and only raised; records are bounded here
        csv.field_size_limit(max(csv.field_size_limit(), max_bytes))
        self._parser = (
            csv.reader(self._feed, delimiter=delimiter, quotechar=quote, strict=True)
            if quote
            else None
        )

    def header(self) -> list[str] | None:
        """Return the first non-blank record as names of columns; None at the end."""
        for values, *_ in self._records(None):
            return values if isinstance(values, list) else None
        return None

    def rows(self, width: int) -> Iterator[Record]:
        """Yield the rows; each must have ``width`` columns."""
        return self._records(width)

    def _records(self, width: int | None) -> Iterator[Record]:
        lines, delimiter = self._lines, self._delimiter
        # no line has two line ends, so without quoting the fast way is always taken
        quote = self._quote if self._parser is not None else b"\n\n"
        next_line, max_bytes = lines.next, lines.max_bytes
        while line := next_line():
            size, number = len(line), lines.number
            if size > max_bytes:
                yield lines.oversized(line)
                continue
            values: list[str] | BrokenRow
            if quote in line:
                values, line = self._quoted(line)
            elif size < _BLANK_BYTES and not line.strip(b"\r\n"):
                continue
            else:
                try:
                    values = line.decode().rstrip("\r\n").split(delimiter)
                except UnicodeDecodeError as error:
                    values = BrokenRow("decode", f"not UTF-8: {error}", "UnicodeDecodeError")
            if values.__class__ is list and len(values) != width and width is not None:
                reason = f"the row has {len(values)} columns, the header has {width}"
                values = BrokenRow("decode", reason)
            yield values, len(line), line, number, -1

    def _quoted(self, line: bytes) -> tuple[list[str] | BrokenRow, bytes]:
        feed = self._feed
        feed.begin(line)
        try:
            values = next(self._parser or iter(()))
        except (csv.Error, UnicodeDecodeError) as error:
            self._lines.give_back(feed.taken[1:])
            reason = feed.stop_reason or f"not CSV: {error}"
            return BrokenRow("decode", reason, type(error).__name__), line
        return values, b"".join(feed.taken)


class _Feed:
    """Source of lines for the csv parser, which takes the lines of one record."""

    def __init__(self, lines: _Lines) -> None:
        self.taken: list[bytes] = []
        self.size = 0
        self.stop_reason = ""
        self._lines = lines
        self._is_fresh = False

    def begin(self, line: bytes) -> None:
        """Start a record."""
        self.taken = [line]
        self.size = len(line)
        self.stop_reason = ""
        self._is_fresh = True

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        if self._is_fresh:
            self._is_fresh = False
            return self.taken[0].decode()
        line = self._lines.next()
        if not line:
            self._lines.number -= 1
            self.stop_reason = "a quote is not closed before the end of the file"
            raise StopIteration
        self.taken.append(line)
        self.size += len(line)
        if self.size > self._lines.max_bytes:
            self.stop_reason = f"a quote is not closed within {self._lines.max_bytes} bytes"
            raise StopIteration
        return line.decode()


class JsonRows:
    """Decoder of JSON records to rows: structs of the used fields."""

    def __init__(self, layout: JsonLayout) -> None:
        """Make the decoder of a compiled mapping's layout."""
        self._row_type = layout.row_type()
        self._explode = layout.explode
        record_type = (
            self._row_type if self._explode is None else layout.parent_type(self._row_type)
        )
        self._decode = msgspec.json.Decoder(record_type).decode
        self._anything = msgspec.json.Decoder()

    def decode(self, text: bytes) -> list[Row]:
        """Return the rows of one record."""
        try:
            if not text.isascii():
                text.decode()  # msgspec does not check unused fields
            record: Any = self._decode(text)
        except DECODE_ERRORS as error:
            return self._broken(text, error)
        if self._explode is None:
            return [(record, -1)]
        return [((row, record), index) for index, row in enumerate(record.elements)]

    def _broken(self, text: bytes, error: Exception) -> list[Row]:
        row = BrokenRow("decode", f"not a JSON record: {error}", type(error).__name__)
        record = self._any_record(text) if isinstance(error, msgspec.ValidationError) else None
        if record is not None and self._explode is not None:
            # a record without a list of objects: find the faulty part
            elements = record.pop(self._explode, None)
            if isinstance(elements, list):
                return [(self._converted(record, x), index) for index, x in enumerate(elements)]
            row = BrokenRow("invalid", f"the record has no list {self._explode!r}")
        return [(row, -1)]

    def _any_record(self, text: bytes) -> dict[str, Any] | None:
        try:
            record = self._anything.decode(text)
        except (msgspec.DecodeError, RecursionError):  # such as a number out of range
            return None
        return record if isinstance(record, dict) else None

    def _converted(self, record: dict[str, Any], element: Any) -> Any:
        if not isinstance(element, dict):
            return BrokenRow("invalid", f"an element of {self._explode!r} is not an object")
        return msgspec.convert(element, self._row_type), msgspec.convert(record, self._row_type)


class JsonRecords:
    """Rows of a JSON Lines stream."""

    def __init__(self, stream: BinaryIO, rows: JsonRows, max_bytes: int) -> None:
        """Begin at the position of a stream of decompressed bytes with a bounded ``readline``.

        ``max_bytes`` includes the line end.
        """
        self._lines = _Lines(stream, max_bytes)
        self._decode = rows.decode

    def rows(self) -> Iterator[Record]:
        """Yield the rows."""
        lines, decode = self._lines, self._decode
        while line := lines.next():
            if len(line) > lines.max_bytes:
                yield lines.oversized(line)
            elif not line.isspace():
                for values, index in decode(line):
                    # the line's bytes count once, with its first row
                    yield values, 0 if index > 0 else len(line), line, lines.number, index


def csv_decoder(delimiter: str, quote: str, width: int) -> Callable[[bytes], list[Row]]:
    """Return a function that decodes one CSV record, like ``JsonRows.decode`` for JSON."""

    def decode(text: bytes) -> list[Row]:
        records = CsvRecords(BytesIO(text), delimiter, quote, len(text))
        rows: list[Row] = [(values, -1) for values, *_ in records.rows(width)]
        reason = f"the record has {len(rows)} rows of CSV, one is expected"
        return rows if len(rows) == 1 else [(BrokenRow("decode", reason), -1)]

    return decode
