"""The bytes of a source in parts: its manifest, and the frames of a part.

A folder has ``manifest.json`` and a subfolder, named in the manifest, with a file for each
partition. Each line is a frame: a CRC-32 as eight hexadecimal digits and a ``Frame`` as a JSON
array. The partition's number is the start value of the CRC, so that parts cannot be confused. The
manifest is written last, so its files are complete.
"""

import json
import zlib
from typing import Final, Self

import msgspec
from pydantic import BaseModel

from walle_stream.errors import SourceError, SourceNotFoundError
from walle_stream.events import Event
from walle_stream.ports import DeadLetter, ObjectStore, SourceBatch
from walle_stream.reading.dead_letters import DECODE_ERRORS, text_digest

MANIFEST: Final = "manifest.json"
_CRC_DIGITS: Final = 8
_VERSION: Final = 2


class Part(msgspec.Struct):
    """Size of a partition's file."""

    rows: int = 0
    size_bytes: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Description of the parts that ``walle partition`` wrote."""

    version: int = _VERSION
    digest: str
    """Digest of all frames, and name of the folder of the parts, beside the manifest."""
    source: dict[str, str | int]
    """Fingerprint of the source in one piece."""
    rules: str
    """Digest of the rest of ``spec.source``; see ``rules_of``."""
    placing: int
    """See ``types.placing_mark``."""
    parts: tuple[Part, ...]
    """Parts by partition."""

    @classmethod
    def read(cls, objects: ObjectStore) -> Self:
        """Read the manifest of a folder or an object store; blocks.

        Raises:
            SourceNotFoundError: The manifest is missing: the cut was never made or not finished.
            SourceError: The manifest is damaged, or of another version.
            StoreError: The manifest cannot be read.
        """
        try:
            found = msgspec.json.decode(b"".join(objects.get(MANIFEST)), type=cls)
        except FileNotFoundError as error:
            raise SourceNotFoundError(
                f"source {objects.place!r} has no complete parts: run walle partition again, or "
                "correct spec.source.path"
            ) from error
        except DECODE_ERRORS as error:
            found, problem = None, f"is damaged ({error})"
        if found is None or found.version != _VERSION:
            problem = problem if found is None else f"has layout {found.version}, not {_VERSION}"
            raise SourceError(f"{objects.place}/{MANIFEST} {problem}: run walle partition again")
        return found


class Frame(msgspec.Struct, array_like=True):
    """Rows that a partition got at once, and the events that they released."""

    accepted_rows: int
    duplicate_rows: int
    raw_bytes: int
    letters: list[DeadLetter]
    events: list[Event]

    @classmethod
    def of(cls, batch: SourceBatch) -> Self:
        """Return the frame of a batch."""
        counts = batch.counts
        own = counts.accepted_rows, counts.duplicate_rows, counts.raw_bytes, batch.dead_letters
        return cls(*own, list(batch.events))

    @property
    def rows(self) -> int:
        """Number of rows in the frame."""
        return self.accepted_rows + self.duplicate_rows + len(self.letters)

    def encode(self, number: int) -> bytes:
        """Return the frame's line in the part of a partition."""
        body = _encode(self)
        return b"%08x%b\n" % (zlib.crc32(body, number), body)

    @classmethod
    def decode(cls, line: bytes, number: int) -> "Frame":
        """Decode a line of a partition's part.

        Raises:
            ValueError: The line was cut or altered, or is of another part.
        """
        crc, body = line[:_CRC_DIGITS], line[_CRC_DIGITS:-1]
        if line[-1:] != b"\n" or crc != b"%08x" % zlib.crc32(body, number):
            raise ValueError("it was cut or altered")
        return _decode(body)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Frame).decode


def part_name(number: int) -> str:
    """Return the name of a partition's file in the folder of the parts."""
    return f"{number:04}.part"


def rules_of(model: BaseModel) -> str:
    """Return the digest of a section ``spec.source``, which does not depend on its file's place."""
    # without defaults, so that a key of a later version does not change old parts
    keys = model.model_dump(mode="json", exclude={"path", "connector"}, exclude_defaults=True)
    return text_digest(json.dumps(keys, sort_keys=True).encode())
