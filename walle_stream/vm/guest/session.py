"""The guest's side of a VM: bind a task, then run batches of it.

The host writes a call into the inbox (``<Q`` call number, then marshal version
2 of the device groups) and enters ``call``. The guest runs every group, writes
the results behind the header of the outbox and, last of all, the header with
the call's number: the completion mark. Results that do not fit stay here; the
header says how much room they need and the host calls ``write_pending`` again
with a larger outbox. The byte layout is documented in ``walle_stream.vm.frames``.

The script's body is executed in fresh globals for every run, so nothing that a
run leaves in a global, a default argument or a class is there for the next.
"""

import gc
import marshal
import struct
from types import CodeType, TracebackType
from typing import Any, Final, NamedTuple

from walle_stream.vm.guest.context import Context, Log
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.restricted import REPLACED_NAMES, SCRIPT_MODULE, make_builtins
from walle_stream.vm.guest.state import State

HEADER: Final = struct.Struct("<4sIQQQ")
"""Magic, status, call number, count of control words, bytes of the body."""

MAGIC: Final = b"WVM1"
"""First bytes of a header that the guest wrote."""

STATUS_COMPLETE: Final = 1
"""The whole result lies behind the header."""

STATUS_TOO_SMALL: Final = 2
"""The result needs a larger outbox."""

DELETED: Final = 0xFFFF_FFFF
"""Length word of a state entry that was deleted."""

MESSAGE_MAX_CHARACTERS: Final = 2_000
"""Longest description of a failed run."""

NAME_MAX_CHARACTERS: Final = 200
"""Longest class name of an exception."""

_NUMBER: Final = struct.Struct("<Q")
_GC_THRESHOLD: Final = 10_000


class _Program(NamedTuple):
    task: str
    file: str
    code: CodeType
    config: bytes


class Session:
    """One VM's task and buffers. One thread at a time, the one that entered."""

    def __init__(self, inbox: memoryview, outbox: memoryview) -> None:
        """Take the buffers.

        Args:
            inbox: Where the host writes calls.
            outbox: Where results go.
        """
        self._inbox = inbox
        self._outbox = outbox
        self._program: _Program | None = None
        self._builtins: dict[str, Any] = {}
        self._result: tuple[int, list[int], bytes] = (0, [], b"")

    def share(self, inbox: memoryview, outbox: memoryview) -> None:
        """Use other buffers from now on.

        Args:
            inbox: Where the host writes calls.
            outbox: Where results go.
        """
        self._inbox = inbox
        self._outbox = outbox

    def bind(self, packed: bytes) -> None:
        """Load a task and try its script's body once.

        The result frame is one run without emits: what is wrong, if anything.

        Args:
            packed: Marshalled (task, file, code, config, imported modules).
        """
        task, file, code, config, imports = marshal.loads(packed)  # noqa: S302 - made by the host
        self._program = program = _Program(task, file, code, config)
        self._builtins = make_builtins(make_importer(imports, REPLACED_NAMES))
        words: list[int] = []
        parts: list[bytes] = []
        namespace = self._namespace(Log())
        try:
            exec(code, namespace)
        except BaseException as error:  # noqa: BLE001 - whatever a script raises is its failure
            _write_failure(words, parts, error, program.file)
        namespace.clear()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 20)
        self._finish(0, words, parts)

    def call(self) -> None:
        """Run the batch in the inbox."""
        inbox = self._inbox
        (number,) = _NUMBER.unpack_from(inbox)
        groups = marshal.loads(inbox[_NUMBER.size :])  # noqa: S302 - made by the host
        words: list[int] = []
        parts: list[bytes] = []
        for device_id, state, runs in groups:
            changes: dict[str, bytes | None] = {}
            for position, clock_ms, given in runs:
                overlay: dict[str, bytes | None] = {}
                if self._run(device_id, State(state, overlay), position, clock_ms, given, words, parts):
                    for key, data in overlay.items():
                        changes[key] = data
                        if data is None:
                            state.pop(key, None)
                        else:
                            state[key] = data
            words.append(len(changes))
            for key, data in changes.items():
                name = key.encode()
                parts.append(name)
                if data is None:
                    words += (len(name), DELETED)
                else:
                    words += (len(name), len(data))
                    parts.append(data)
        self._finish(number, words, parts)

    def write_pending(self) -> None:
        """Write the last result, or how much room it needs."""
        number, words, body = self._result
        words_bytes = 4 * len(words)
        size_bytes = HEADER.size + words_bytes + len(body)
        outbox = self._outbox
        status = STATUS_TOO_SMALL
        if size_bytes <= len(outbox):
            status = STATUS_COMPLETE
            struct.pack_into(f"<{len(words)}I", outbox, HEADER.size, *words)
            outbox[HEADER.size + words_bytes : size_bytes] = body
            self._result = (0, [], b"")
        HEADER.pack_into(outbox, 0, MAGIC, status, number, words_bytes // 4, len(body))

    def _finish(self, number: int, words: list[int], parts: list[bytes]) -> None:
        self._result = (number, words, b"".join(parts))
        self.write_pending()

    def _namespace(self, log: Log) -> dict[str, Any]:
        return {"__builtins__": self._builtins, "__name__": SCRIPT_MODULE, "print": log.print}
