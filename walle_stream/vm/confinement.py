"""What a task asks of the processes that its runs are confined in."""

import msgspec


class Confinement(msgspec.Struct, frozen=True):
    """How the processes of a task with ``isolation: process`` are confined."""

    memory_bytes: int = 256 * 1024 * 1024
    """Of one process, interpreter included."""
    cpu_ms: int = 0
    """CPU time of one run; 0 for any."""
    required: frozenset[str] = frozenset()
    """Measures without which no script runs."""
