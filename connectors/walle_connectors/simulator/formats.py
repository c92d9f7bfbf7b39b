"""In which format ``walle simulate`` writes the shop: as lines, or packed for fast reading."""

from hashlib import blake2b
from typing import Final, override

import msgspec

from walle_connectors.simulator.model import SimulatorModel
from walle_stream.events import Event
from walle_stream.wire.event_blocks import encode_file_head
from walle_stream.wire.event_builder import BlockBuilder

FORMATS: Final = ("jsonl", "packed")
"""Their names; the first one is meant where none is given."""

_MARKER_BYTES: Final = 12


class Format:
    """Turns lines into a file: as they are. One thread."""

    def begin(self) -> bytes:
        """Return what the file begins with."""
        return b""

    def add(self, line: bytes) -> bytes:
        """Take an event, JSON without the line's end; return what is to be written now."""
        return line + b"\n"

    def flush(self) -> bytes:
        """Return what is left to be written; more may come."""
        return b""


class _Record(Event, gc=False):
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _Packed(Format):
    def __init__(self, model: SimulatorModel) -> None:
        # no payload has it by chance, and the same definition gives the same bytes
        # of more sessions, too, as far as it goes
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
    """Return one of ``FORMATS``, which has written nothing yet."""
    return Format() if name == "jsonl" else _Packed(model)
