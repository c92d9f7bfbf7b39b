"""The file source: a definition that can be opened."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, override

from walle_connectors.file_stream import FileSource, FileStream
from walle_connectors.files.model import FilesModel
from walle_connectors.files.reader import FileRows, FilesReader
from walle_stream.errors import SourceError
from walle_stream.ports import DeclaredIds
from walle_stream.reading import Opening
from walle_stream.reading.mapping.compiling import MappingError, compile_mapping
from walle_stream.reading.mapping.layout import CsvLayout, JsonLayout
from walle_stream.reading.mapping.records import (
    CsvRecords,
    JsonRecords,
    JsonRows,
    csv_decoder,
)

_DELIMITERS: Final = ",;\t|"
_BEGINNING_BYTES: Final = 16
_UTF_16: Final = "is UTF-16: write it as UTF-8"
_FOREIGN: Final = (
    (b"\xff\xfe", _UTF_16),
    (b"\xfe\xff", _UTF_16),
    (b"(\xb5/\xfd", "is compressed by zstd: decompress it, or compress it by gzip"),
    (b"BZh", "is compressed by bzip2: decompress it, or compress it by gzip"),
    (b"\xfd7zXZ", "is compressed by xz: decompress it, or compress it by gzip"),
    (b"PK\x03\x04", "is a ZIP archive or a spreadsheet: export it as CSV"),
)
_SHOWN_MAX: Final = 80


class FilesSource(FileSource):
    """Events from one CSV or JSON Lines file."""

    def __init__(self, model: FilesModel) -> None:
        """Keep the definition; the file is not opened."""
        super().__init__(Path(model.path), model.format)
        self._model = model

    @property
    def declared(self) -> DeclaredIds:
        """Ids and pages that the definition has as literals."""
        return self._model.declared

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The file's first bytes and the mapping, without the file's path."""
        return {**super().fingerprint, "mapping": self._model.digest}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Return the difference from a stored fingerprint."""
        is_same = self._model.digest == stored.get("mapping")
        mapping = "" if is_same else "spec.source maps it to events in another way than before"
        return super().difference(stored) or mapping

    @override
    def _read(self, stream: FileStream, opening: Opening) -> FilesReader:
        stream.skip_mark()
        try:
            open_rows = _open_csv if self._model.format == "csv" else _open_json
            return FilesReader(stream, opening, open_rows(self._model, stream), self._model.order)
        except MappingError as error:
            raise SourceError(f"source {stream.name!r}: spec.source.{error}") from error


def _open_csv(model: FilesModel, stream: FileStream) -> FileRows:
    beginning = stream.peek(_BEGINNING_BYTES)
    csv = CsvRecords(stream.bytes, model.delimiter, model.quote, model.max_record_bytes)
    header = csv.header()
    if header is None:
        what = next((what for magic, what in _FOREIGN if beginning.startswith(magic)), "")
        what = what or (f"begins with {beginning!r}: add one" if beginning else "is empty: add one")
        raise SourceError(f"source {stream.name!r} has no readable header line: it {what}")
    try:
        build = compile_mapping(model, CsvLayout(model.columns, header))
    except MappingError as error:
        raise MappingError(f"{error}{_better_delimiter(header, model.delimiter)}") from error
    width = len(header)
    decode = csv_decoder(model.delimiter, model.quote, width)
    return FileRows(csv.rows(width), build, decode)


def _better_delimiter(header: list[str], delimiter: str) -> str:
    # the end of a message about a missing column; empty if the header has several columns
    line = delimiter.join(header)
    if "\r" in line:
        return (
            f"; its header is {line[:_SHOWN_MAX]!r}: its lines end with CR alone: end them with LF"
        )
    better = max(_DELIMITERS, key=line.count)
    columns = line.count(better) + 1
    if columns <= len(header) and len(header) > 1:
        return ""
    count = "one column" if len(header) == 1 else f"{len(header)} columns"
    shown = repr(line if len(line) <= _SHOWN_MAX else f"{line[:_SHOWN_MAX]}...")
    found = f"; with delimiter {delimiter!r} its header has {count}, {shown}"
    if columns <= len(header):
        return found
    return f"{found}: spec.source.delimiter {better!r} would give {columns}"


def _open_json(model: FilesModel, stream: FileStream) -> FileRows:
    layout = JsonLayout(model.explode)
    build = compile_mapping(model, layout)  # the layout learns the used fields
    rows = JsonRows(layout)
    records = JsonRecords(stream.bytes, rows, model.max_record_bytes).rows()
    return FileRows(records, build, rows.decode)
