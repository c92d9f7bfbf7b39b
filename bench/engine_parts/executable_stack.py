"""Shared objects that ask for a stack which can be executed, and do not need one.

The wheel of MNN was linked with assembler that does not say so; newer C libraries
refuse to load such an object. One bit in its program headers says what it asks for.
"""

import struct
from pathlib import Path
from typing import Final

_GNU_STACK: Final = 0x6474E551
_EXECUTABLE: Final = 1
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_FLAGS_AT: Final = 4
"""In a program header of 64 bits, behind its type."""


def clear_executable_stack(path: Path) -> bool:
    """Let an object ask for a plain stack.

    Args:
        path: Of a shared object; replaced where it asked for more.

    Returns:
        Whether it did.
    """
    data = bytearray(path.read_bytes())
    if not data.startswith(_ELF_64_LITTLE):
        return False
    (headers_at,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for start in range(headers_at, headers_at + size * count, size):
        kind, flags = struct.unpack_from("<II", data, start)
        if kind == _GNU_STACK and flags & _EXECUTABLE:
            struct.pack_into("<I", data, start + _FLAGS_AT, flags & ~_EXECUTABLE)
            new = path.with_suffix(".new")
            new.write_bytes(data)
            new.chmod(path.stat().st_mode)
            # in one step: a process that has the old one mapped keeps it
            Path(new).replace(path)
            return True
    return False
