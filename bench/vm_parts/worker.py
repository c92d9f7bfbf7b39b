"""A process that runs batches: the control of the comparison with VMs.

Reads a program and then batches from its standard input, each behind its length.
Answers the program with ``READY``, and each batch with the result frame that a VM
would write: the same session and the same bytes, without an isolated interpreter.
"""

import os
import struct
from typing import Final

from walle_stream.vm.guest.layout import HEADER, WORD_BYTES
from walle_stream.vm.guest.session import Session

LENGTH: Final = struct.Struct("<Q")
"""What stands before every message."""

READY: Final = b"ready"
"""Answer to the program; a batch sent before it may be read with the program as one message."""

OUTBOX_BYTES: Final = 4 * 1024 * 1024
"""Largest result."""

_CHUNK_BYTES: Final = 1024 * 1024


def receive(fd: int) -> memoryview:
    """Read a message; empty at the end of the stream. One system call if it fits the pipe.

    Only one message may be under way: what is behind it in the pipe is not kept.
    """
    data = os.read(fd, _CHUNK_BYTES)
    if not data:
        return memoryview(b"")
    size_bytes = LENGTH.size + LENGTH.unpack_from(data)[0]
    if len(data) < size_bytes:
        whole = bytearray(data)
        while len(whole) < size_bytes:
            data = os.read(fd, _CHUNK_BYTES)
            if not data:
                return memoryview(b"")
            whole += data
        return memoryview(whole)[LENGTH.size :]
    return memoryview(data)[LENGTH.size :]


def send(fd: int, body: bytes | memoryview) -> None:
    """Write a message."""
    length = LENGTH.pack(len(body))
    done = os.writev(fd, (length, body)) - LENGTH.size
    rest = memoryview(body)[done:]
    while rest:
        rest = rest[os.write(fd, rest) :]


def main() -> None:
    """Answer until the input ends."""
    outbox = memoryview(bytearray(OUTBOX_BYTES))
    session = Session(memoryview(bytearray(16)), outbox, memoryview(bytearray(8)))
    session.bind(bytes(receive(0)))
    send(1, READY)
    while packed := receive(0):
        session.call(packed)
        _, _, _, words, body_bytes = HEADER.unpack_from(outbox)
        send(1, outbox[: HEADER.size + WORD_BYTES * words + body_bytes])


if __name__ == "__main__":
    main()
