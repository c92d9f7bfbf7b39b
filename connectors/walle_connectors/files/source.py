"""The file source: a definition that can be opened, and its fingerprint."""

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from walle_connectors.file_stream import HEAD_BYTES, READ_ERRORS, FileStream, read_head
from walle_connectors.files.expressions import literals
from walle_connectors.files.layout import CsvLayout, JsonLayout
from walle_connectors.files.mapping import MappingError, RowResult, compile_mapping
from walle_connectors.files.model import FilesModel
from walle_connectors.files.reader import FilesReader
from walle_connectors.files.records import CsvRecords, JsonRecords, Record
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.ports import DeclaredIds

_DIGEST_BYTES: Final = 16
_DELIMITERS: Final = ",;\t|"
_SHOWN_MAX: Final = 80

type _Rows = tuple[Callable[[Any], RowResult], Iterator[Record]]


class FilesSource:
    """Events from one CSV or JSON Lines file."""

    def __init__(self, model: FilesModel) -> None:
        """Keep the definition; the file is not touched."""
        self._model = model

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._model.path

    @property
    def declared(self) -> DeclaredIds:
        """Ids and pages that stand in the definition as literals."""
        events = self._model.events
        # without an id of its own an event has its kind's
        ids = [{each.kind} if each.id is None else literals(each.id) for each in events]
        pages = [literals(each.page) for each in events]
        return DeclaredIds(
            frozenset().union(*(each or () for each in ids)),
            frozenset().union(*(each or () for each in pages)),
            has_other_ids=None in ids,
            has_other_pages=None in pages,
        )

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The file's beginning and the mapping; not where the file is.

        Raises:
            SourceError: The file cannot be read.
        """
        head = read_head(self._model.path, HEAD_BYTES)
        return {
            "format": self._model.format,
            "head_bytes": len(head),
            "head_digest": _digest(head),
            "mapping": _mapping_digest(self._model),
        }

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse another file or mapping; a file that grew is the same one.

        Raises:
            SourceChangedError: The beginning or the mapping differs.
            SourceError: The file cannot be read.
        """
        size = int(stored.get("head_bytes", 0))
        head = read_head(self._model.path, size)
        if len(head) < size:
            self._refuse(f"it has {len(head)} bytes, before it had at least {size}")
        if _digest(head) != stored.get("head_digest"):
            self._refuse(f"its first {size} bytes are others than before")
        if stored.get("format") != self._model.format:
            self._refuse(f"its format is {self._model.format}, before {stored.get('format')}")
        if _mapping_digest(self._model) != stored.get("mapping"):
            self._refuse("spec.source maps it to events in another way than before")

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
    ) -> FilesReader:
        """Open the file; see ``ports.Source.open``.

        Raises:
            SourceError: The file cannot be opened, lacks a column that the
                mapping uses, or an offset is not of a file source.
        """
        model = self._model
        stream = FileStream(model.path)
        try:
            stream.skip_mark()
            build, records = (
                _open_csv(model, stream) if model.format == "csv" else _open_json(model, stream)
            )
            return FilesReader(
                stream=stream,
                records=records,
                build=build,
                order=model.order,
                offsets=offsets,
                partition_count=partition_count,
                batch_events=batch_events,
                limit=limit,
            )
        except BaseException as error:
            stream.close()
            if isinstance(error, MappingError):
                raise SourceError(f"source {stream.name!r}: spec.source.{error}") from error
            if isinstance(error, READ_ERRORS):
                raise SourceError(f"source {stream.name!r} cannot be read ({error})") from error
            raise

    def _refuse(self, difference: str) -> None:
        raise SourceChangedError(
            f"source {str(self._model.path)!r} is not the one that the data directory was made "
            f"from: {difference}. Give the same source, or a new --data-dir"
        )


def _open_csv(model: FilesModel, stream: FileStream) -> _Rows:
    csv = CsvRecords(stream.bytes, model.delimiter, model.quote, model.max_record_bytes)
    header = csv.header()
    if header is None:
        raise SourceError(f"source {stream.name!r} has no readable header line: add one")
    try:
        build = compile_mapping(model, CsvLayout(model.columns, header))
    except MappingError as error:
        raise MappingError(f"{error}{_better_delimiter(header, model.delimiter)}") from error
    return build, csv.rows(len(header))


def _better_delimiter(header: list[str], delimiter: str) -> str:
    # the end of a message about a column that is missing, or nothing where others are there
    line = delimiter.join(header)
    better = max(_DELIMITERS, key=line.count)
    columns = line.count(better) + 1
    if columns <= len(header) and len(header) > 1:
        return ""
    count = "one column" if len(header) == 1 else f"{len(header)} columns"
    found = f"; with delimiter {delimiter!r} its header has {count}, {_shown(line)}"
    if columns <= len(header):
        return found
    return f"{found}: spec.source.delimiter {better!r} would give {columns}"


def _shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN_MAX else f"{line[:_SHOWN_MAX]}...")


def _open_json(model: FilesModel, stream: FileStream) -> _Rows:
    layout = JsonLayout(model.explode)
    build = compile_mapping(model, layout)  # the layout learns which fields are used
    return build, JsonRecords(stream.bytes, layout, model.max_record_bytes).rows()


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def _mapping_digest(model: FilesModel) -> str:
    # without defaults: a key that a later version adds does not change old sources
    mapping = model.model_dump(mode="json", exclude={"path"}, exclude_defaults=True)
    return _digest(json.dumps(mapping, sort_keys=True).encode())
