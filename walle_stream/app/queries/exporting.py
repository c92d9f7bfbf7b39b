"""Export of features to a CSV or Parquet table with a column per field of a feature.

Every feature is read twice, as the fields and their types are known only after the first pass. The
file is written atomically.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import batched
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from walle_stream.errors import MalformedRowError, WalleError
from walle_stream.errors.extras import how_to_install
from walle_stream.store.files import flush_file, placing, refusal
from walle_stream.wire.frame import FeatureRecord

FORMATS: Final = ("csv", "parquet")

_OWN: Final = {"device_id": "text", "task": "text", "task_version": "text"} | {
    "sequence_number": "integer"
}
_MIXED: Final = {
    frozenset({"integer", "number"}): "number",
    frozenset({"integer", "long"}): "long",
}
_CHUNK: Final = 20_000
"""Rows in memory at once; a row group of Parquet."""
_TRIES: Final = 10
_EXACT: Final = range(-(2**53), 2**53 + 1)
"""Integers that a float represents exactly."""
_INT64: Final = range(-(2**63), 2**63)
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Exported(NamedTuple):
    """Counts of an export."""

    features: int
    columns: int


class _Changed(Exception):  # noqa: N818 - no failure: a run wrote more
    """A feature does not fit the columns that the first pass found."""


type _Rows = list[dict[str, Any]]
type _Write = Callable[[_Rows], None]


def export_features(read: Callable[[], Iterable[FeatureRecord]], path: Path, kind: str) -> Exported:
    """Write features into a file, replacing an existing one; blocks.

    Columns: device_id, task, task_version, sequence_number, ``feature.FIELD`` for each field, and
    ``encoding`` where a feature has one (CSV: hexadecimal). A field that is nested, or has several
    types, is JSON text.

    Args:
        read: Returns all features from the first one, at each call.
        path: The file.
        kind: One of ``FORMATS``.

    Raises:
        MalformedRowError: Features were left out, as ``read`` says at its end; the file is written.
        WalleError: Parquet needs an extra that is not installed.
        OSError: The file cannot be written.
    """
    opener = {"csv": _csv_writer, "parquet": _parquet_writer}[kind]
    left_out: list[MalformedRowError] = []
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise WalleError(f"{path} is no regular file and cannot be replaced: choose another path")
    for _ in range(_TRIES):
        columns = _columns(_good(read, []))
        try:
            with _placed(path) as part, opener(part, columns) as write:
                count = 0
                for records in batched(_good(read, left_out), _CHUNK, strict=False):
                    write([_row(record, columns) for record in records])
                    count += len(records)
        except _Changed:
            continue
        if left_out:
            raise left_out[-1]
        return Exported(count, len(columns))
    raise WalleError(f"{path}: a run keeps adding features of new types: stop it, or use --task")


def _good(
    read: Callable[[], Iterable[FeatureRecord]], left_out: list[MalformedRowError]
) -> Iterator[FeatureRecord]:
    try:
        yield from read()
    except MalformedRowError as error:
        left_out.append(error)


def _columns(records: Iterable[FeatureRecord]) -> dict[str, str]:
    """Return the type of each column, by name."""
    types: dict[str, str] = {}
    has_encoding = False
    for record in records:
        has_encoding = has_encoding or bool(record.encoding)
        for name, value in _decode(record.feature).items():
            found = _type_of(value)
            if found:
                types[name] = _common(types.get(name, ""), found)
            else:
                types.setdefault(name, "")
    fields = {f"feature.{name}": found or "text" for name, found in types.items()}
    return _OWN | fields | ({"encoding": "bytes"} if has_encoding else {})


def _type_of(value: Any) -> str:
    # empty for null, which fits any type
    if value is None:
        return ""
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "integer" if value in _EXACT else "long" if value in _INT64 else "json"
    names = {float: "number", str: "text"}
    return names.get(type(value), "json")


def _common(one: str, other: str) -> str:
    if not one or one == other:
        return other
    return _MIXED.get(frozenset({one, other}), "json")


def _row(record: FeatureRecord, columns: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(columns)
    row |= {name: getattr(record, name) for name in _OWN}
    if record.encoding:
        row["encoding"] = record.encoding
    for name, value in _decode(record.feature).items():
        wanted, found = columns.get(f"feature.{name}", "none"), _type_of(value)
        if found and _common(wanted, found) != wanted:
            raise _Changed
        if wanted == "json" and found:
            value = _encode(value).decode()  # noqa: PLW2901 - the column's form
        row[f"feature.{name}"] = float(value) if wanted == "number" and found else value
    if len(row) > len(columns):
        raise _Changed
    return row


@contextmanager
def _placed(path: Path) -> Iterator[Path]:
    try:
        with placing(path) as part:
            yield part
            flush_file(part)
    except OSError as error:
        raise refusal(
            error, f"{path} cannot be written: {error.strerror or error}: choose another file"
        ) from error


def _text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return value.hex() if isinstance(value, bytes) else value


@contextmanager
def _csv_writer(part: Path, columns: Mapping[str, str]) -> Iterator[_Write]:
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        yield lambda rows: writer.writerows(
            {name: _text_of(value) for name, value in row.items()} for row in rows
        )


@contextmanager
def _parquet_writer(part: Path, columns: Mapping[str, str]) -> Iterator[_Write]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415 - the same
    except ImportError as error:
        raise WalleError(
            f"Parquet needs the extra parquet ({error}): {how_to_install('parquet')}"
        ) from error
    types = {
        "text": pa.string(),
        "json": pa.string(),
        "integer": pa.int64(),
        "long": pa.int64(),
        "number": pa.float64(),
        "truth": pa.bool_(),
        "bytes": pa.binary(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        yield lambda rows: writer.write_table(pa.Table.from_pylist(rows, schema))
