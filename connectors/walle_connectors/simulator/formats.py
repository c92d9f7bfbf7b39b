"""Output formats of ``walle simulate``: lines, or packed for fast reading."""

from hashlib import blake2b
from typing import Final, override

import msgspec

from walle_connectors.simulator.model import SimulatorModel
from walle_stream.events import Event
from walle_stream.wire.event_blocks import encode_file_head
from walle_stream.wire.event_builder import BlockBuilder

FORMATS: Final = ("jsonl", "packed")
"""Names of the formats; the first is the default."""

_MARKER_BYTES: Final = 12


class Format:
    """Writes lines unchanged. One thread."""

    def begin(self) -> bytes:
        """Return the first bytes of the file."""
        return b""

    def add(self, line: bytes) -> bytes:
        """Take an event, JSON without a line end; return bytes to write now."""
        return line + b"\n"

    def flush(self) -> bytes:
        """Return the remaining bytes to write; more events may follow."""
        return b""


class _Record(Event, gc=False):
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _Packed(Format):
    def __init__(self, model: SimulatorModel) -> None:
        # No payload contains the marker by chance. The same definition gives the same bytes; more
        # sessions only make the file longer.
        text = model.model_dump_json(exclude={"connector", "sessions"}).encode()
        self._marker = blake2b(text, digest_size=_MARKER_BYTES, person=b"wev-marker").digest()
        self._builder = BlockBuilder(self._marker)
        self._decode = msgspec.json.Decoder(_Record).decode

    @override
    def begin(self) -> bytes:
        return encode_file_head(self._marker)

    @override
    def add(self, line: bytes) -> bytes:
        record = self._decode(line)
        return self._builder.add(record, bytes(record.payload))

    @override
    def flush(self) -> bytes:
        return self._builder.flush()


def make_format(name: str, model: SimulatorModel) -> Format:
    """Return a new writer of one of ``FORMATS``."""
    return Format() if name == "jsonl" else _Packed(model)
