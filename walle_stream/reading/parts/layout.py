"""The bytes of a source in parts: its manifest, and the frames of a part.

A folder has ``manifest.json`` and, in a folder that the manifest names, a file for each partition:
a frame a line, a CRC-32 as eight hexadecimal digits and a ``Frame`` as a JSON array. The CRC begins
with the partition, so that no part is taken for another. The manifest is written last, so what it
names is whole.
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
    """How much is in a partition's file."""

    rows: int = 0
    size_bytes: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``walle partition`` says of what it wrote."""

    version: int = _VERSION
    digest: str
    """Of all frames; what the folder of the parts is called, beside the manifest."""
    source: dict[str, str | int]
    """Fingerprint of the source in one piece."""
    rules: str
    """Of the rest of ``spec.source``; see ``rules_of``."""
    placing: int
    """See ``types.placing_mark``."""
    parts: tuple[Part, ...]
    """By partition."""

    @classmethod
    def read(cls, objects: ObjectStore) -> Self:
        """Read that of a folder or an object store; blocks.

        Raises:
            SourceNotFoundError: There is none: nothing was cut there, or not to its end.
            SourceError: It is damaged, or of another version.
            StoreError: It cannot be read.
        """
        try:
            found = msgspec.json.decode(b"".join(objects.get(MANIFEST)), type=cls)
        except FileNotFoundError as error:
            raise SourceNotFoundError(
                f"source {objects.place!r} is a place without whole parts: run walle partition "
                "again, or correct spec.source.path"
            ) from error
        except DECODE_ERRORS as error:
            found, problem = None, f"is damaged ({error})"
        if found is None or found.version != _VERSION:
            problem = problem if found is None else f"has layout {found.version}, not {_VERSION}"
            raise SourceError(f"{objects.place}/{MANIFEST} {problem}: run walle partition again")
        return found


class Frame(msgspec.Struct, array_like=True):
    """What a partition was given at once: rows, and the events that they released."""

    accepted_rows: int
    duplicate_rows: int
    raw_bytes: int
    letters: list[DeadLetter]
    events: list[Event]

    @classmethod
    def of(cls, batch: SourceBatch) -> Self:
        """Take what a batch has."""
        counts = batch.counts
        own = counts.accepted_rows, counts.duplicate_rows, counts.raw_bytes, batch.dead_letters
        return cls(*own, list(batch.events))

    @property
    def rows(self) -> int:
        """How many rows it accounts."""
        return self.accepted_rows + self.duplicate_rows + len(self.letters)

    def encode(self, number: int) -> bytes:
        """Return its line in the part of a partition."""
        body = _encode(self)
        return b"%08x%b\n" % (zlib.crc32(body, number), body)

    @classmethod
    def decode(cls, line: bytes, number: int) -> "Frame":
        """Decode a line of a partition's part.

        Raises:
            ValueError: It was cut or altered, or is of another part.
        """
        crc, body = line[:_CRC_DIGITS], line[_CRC_DIGITS:-1]
        if line[-1:] != b"\n" or crc != b"%08x" % zlib.crc32(body, number):
            raise ValueError("it was cut or altered")
        return _decode(body)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Frame).decode


def part_name(number: int) -> str:
    """Return what a partition's file is called, in the folder of the parts."""
    return f"{number:04}.part"


def rules_of(model: BaseModel) -> str:
    """Return what tells a section ``spec.source`` from others, wherever its file is."""
    # without defaults: a key that a later version adds does not change old parts
    keys = model.model_dump(mode="json", exclude={"path", "connector"}, exclude_defaults=True)
    return text_digest(json.dumps(keys, sort_keys=True).encode())
