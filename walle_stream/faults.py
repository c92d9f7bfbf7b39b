"""Named crash points, so that a kill can be aimed at a line of the pipeline.

Production code calls :func:`crash_point` where a death would be interesting;
unless the environment asks for it, the call does nothing. ``WALLE_CRASH`` is
``NAME`` or ``NAME:N``: the process kills itself with SIGKILL when the point is
reached for the N-th time (1 when left out). No handler and no clean-up runs.
"""

import os
import signal
from typing import Final

CRASH_POINTS: Final = (
    "read.batch",
    "vm.before",
    "vm.after",
    "flush.before",
    "commit.before",
    "commit.after",
    "send.before",
    "send.after",
    "ack.before",
    "cloud.before",
    "cloud.after",
    "close.before",
)
"""Every point, in the order in which a batch passes them."""


def _armed() -> tuple[str, int]:
    name, _, count = os.environ.get("WALLE_CRASH", "").partition(":")
    return name, int(count) if count.isdigit() else 1


_name, _left = _armed()


def crash_point(name: str) -> None:
    """Die here with SIGKILL if this point is armed and due.

    Args:
        name: One of ``CRASH_POINTS``.
    """
    global _left  # noqa: PLW0603 - one countdown for the whole process
    if name != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
