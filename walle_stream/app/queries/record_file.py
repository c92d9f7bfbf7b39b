"""A file as the target of a replay: one line per record, as the source had it.

Pages of failed runs become their events. The file can then be the source of a pipeline that runs
the corrected script over them. The file is written atomically.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_stream.errors import SourceError
from walle_stream.ports import KeptLetter
from walle_stream.store.files import place_file

_decode_page: Final = msgspec.json.Decoder(list[Any]).decode
_PAGE_PARTS: Final = 6


class RecordFile:
    """A ``RecordReturn`` whose records count only after ``commit``.

    Every method raises ``SourceError`` if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        """Begin a temporary file beside the final one.

        The final file must not exist yet: it may hold corrected records.

        Raises:
            SourceError: The file exists, or cannot be written.
        """
        if path.exists():
            raise SourceError(f"{path} already exists: give another file with --to")
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        with self._writing():
            self._stream = self._part.open("wb")

    def put(self, kept: KeptLetter) -> None:
        """Write a record's line, or a line per event of a page; see ``RecordReturn.put``."""
        letter = kept.letter
        if letter.holds == "page":
            lines = _event_lines(letter.device_id, letter.record)
        else:
            lines = [letter.record.rstrip(b"\r\n")]
        with self._writing():
            for line in lines:
                # line ends in a topic's record lie between JSON values, where they mean nothing
                self._stream.write(line.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n")

    def flush(self) -> None:
        """Write all records to the disk; see ``RecordReturn.flush``."""
        with self._writing():
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def commit(self) -> None:
        """Rename the temporary file to its final name."""
        self.flush()
        with self._writing():
            self._stream.close()
            place_file(self._part, self._path)

    def close(self) -> None:
        """Remove an uncommitted file; may be called twice."""
        self._stream.close()
        self._part.unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SourceError(
                f"{self._path} cannot be written: {error.strerror or error}: give another file "
                "with --to; no letter is marked as replayed"
            ) from error


def _event_lines(device_id: str, record: bytes) -> list[bytes]:
    page = _decode_page(record)
    if len(page) != _PAGE_PARTS:
        return []  # a reply of the cloud woke the run, so there are no events
    page_id, page_instance, _, _, _, rows = page
    return [
        msgspec.json.encode(
            {
                "device_id": device_id,
                "id": event_id,
                "kind": kind,
                "page_id": page_id,
                "page_instance": page_instance,
                "event_time_ms": event_time_ms,
                "ingest_time_ms": ingest_time_ms,
                "contents": contents or {},
            }
        )
        for event_id, kind, event_time_ms, ingest_time_ms, contents in rows
    ]
