"""Busy neighbours: processes that want a core each, for as long as something is measured."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# one that is left alone, because its bench was killed, ends by itself
_WORK: Final = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    sum(range(200_000))
"""


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Keep this many processes busy while the block runs.

    Args:
        count: How many; 0 for none.
    """
    command = [sys.executable, "-S", "-c", _WORK, str(os.getpid())]
    working: list[subprocess.Popen[bytes]] = []
    try:
        working.extend(subprocess.Popen(command) for _ in range(count))
        yield
    finally:
        for each in working:
            each.kill()
        for each in working:
            each.wait()
