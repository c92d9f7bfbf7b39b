"""What a link does to bytes, per direction."""

import random
from enum import Enum
from typing import Final

import msgspec


class Direction(Enum):
    """One of a link's two ways."""

    UP = "up"
    """From who connected to the target."""
    DOWN = "down"
    """From the target to who connected."""


UP: Final = Direction.UP
DOWN: Final = Direction.DOWN


class LinkShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a healthy direction forwards."""

    delay_ms: float = 0.0
    """Added to every piece, ≥ 0."""
    jitter_ms: float = 0.0
    """At most so much more, drawn anew for each piece; order is kept, as TCP keeps it."""
    bytes_per_s: float = 0.0
    """Most bytes per second of a connection; 0 for no limit."""


class Pacer:
    """When the pieces of one direction of one connection are due. One thread."""

    def __init__(self, seed: str) -> None:
        """Begin.

        Args:
            seed: The jitter follows from it.
        """
        # seeded for repeatability, not for secrecy
        self._random = random.Random(seed)  # noqa: S311
        self._last_due_s = 0.0
        self._free_at_s = 0.0

    def due_s(self, shape: LinkShape, now_s: float, size_bytes: int) -> float:
        """Return when a piece that came now may leave: never before the one before it.

        Args:
            shape: The direction's, now.
            now_s: A clock that never goes back.
            size_bytes: The piece's.
        """
        jitter_ms = self._random.uniform(0.0, shape.jitter_ms)
        due_s = now_s + (shape.delay_ms + jitter_ms) / 1000.0
        if shape.bytes_per_s > 0.0:
            # the wire is busy until then; a piece has left when its last byte has
            begins_s = max(self._free_at_s, now_s)
            self._free_at_s = begins_s + size_bytes / shape.bytes_per_s
            due_s += self._free_at_s - now_s
        self._last_due_s = max(self._last_due_s, due_s)
        return self._last_due_s
