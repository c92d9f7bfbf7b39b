"""A data set of Parquet files: ``lane=LANE/NUMBER.parquet``, each with a fixed range of numbers.

A file has the features from its number to the next multiple of ``RANGE``, and is rewritten while
its range fills. A repeated write gives the file the same rows, or more. So a reader finds each
feature once, whatever was killed. Readers skip hidden files, which are temporary.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Final

from walle_stream.errors import SinkError, WalleError
from walle_stream.errors.extras import how_to_install
from walle_stream.ports import MergedFeature, Written, first_part
from walle_stream.store.files import flush_file, make_folder, place_file

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise WalleError(
        f"Parquet needs the extra parquet ({error}): {how_to_install('parquet')}"
    ) from error

RANGE: Final = 32_768
"""Numbers in one file's range."""

_CHUNK: Final = 4_096
"""Features in memory at once, the size of a row group."""

_SCHEMA: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("incarnation", pa.string()),
        ("device_id", pa.string()),
        ("task", pa.string()),
        ("task_version", pa.string()),
        ("sequence_number", pa.int64()),
        ("event_time_ms", pa.int64()),
        ("feature", pa.string()),
        ("encoding", pa.binary()),
    ]
)


class ParquetSink:
    """Implements ``ports.FeatureSink``."""

    def __init__(self, folder: Path, pause_s: float) -> None:
        """Make the folder; blocks.

        Raises:
            WalleError: The folder cannot be made.
        """
        self.pause_s = pause_s
        self._folder = folder
        try:
            make_folder(folder)
        except OSError as error:
            raise WalleError(f"{folder} cannot be a data set: {error.strerror}") from error

    def write(self, lane: str, features: Iterator[MergedFeature]) -> Written:
        """Write the file of the first feature's range; see ``FeatureSink.write``.

        Raises:
            SinkError: None of the features counts as written.
        """
        first = next(features)
        start = first.number // RANGE * RANGE
        end = start + RANGE
        beyond: list[MergedFeature] = []

        def is_of_range(feature: MergedFeature) -> bool:
            if feature.number >= end:
                beyond.append(feature)
            return feature.number < end

        try:
            folder = self._folder / f"lane={lane}"
            make_folder(folder)
            with _alone(folder) as part:
                rows = takewhile(is_of_range, chain([first], features))
                count, behind = _fill(part, rows)
                path = folder / f"{start:020d}.parquet"
                # a worker that lost the lane and comes late has fewer rows
                if count >= _rows_of(path):
                    flush_file(part)
                    place_file(part, path)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"{self._folder}: {error}") from error
        return Written(end, end) if beyond else Written(behind, first.number)

    def close(self) -> None:
        """Do nothing: each file is complete; see ``FeatureSink.close``."""


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    # yields the path of the part, which no other worker uses meanwhile
    part = folder / ".part"
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SinkError(f"{folder}: another worker writes to it") from error
        with suppress(FileNotFoundError):
            part.unlink()
        yield part
    finally:
        os.close(lock)


def _fill(part: Path, features: Iterator[MergedFeature]) -> tuple[int, int]:
    # returns the number of rows, and the number after the last one
    count = behind = 0
    with parquet.ParquetWriter(part, _SCHEMA, compression="zstd") as writer:
        while chunk := first_part(features, _CHUNK):
            writer.write_table(pa.Table.from_pylist([_row(each) for each in chunk], _SCHEMA))
            count, behind = count + len(chunk), chunk[-1].number + 1
    return count, behind


def _rows_of(path: Path) -> int:
    try:
        return int(parquet.read_metadata(path).num_rows)
    except FileNotFoundError:
        return 0


def _row(feature: MergedFeature) -> dict[str, Any]:
    row = {name: getattr(feature, name) for name in _SCHEMA.names}
    row["feature"] = feature.feature.decode()
    return row
