"""What a link does to bytes, per direction."""

import random
from enum import Enum
from typing import Final

import msgspec

SEGMENT_BYTES: Final = 1_448
"""What a TCP segment carries over Ethernet."""

RESEND_MS: Final = 200.0
"""Until a lost segment is sent again, twice as long for each further time: Linux's shortest
time-out. What follows a request is an answer, so nothing behind it tells the sender sooner."""


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
    loss_ratio: float = 0.0
    """Share of the segments that the network loses, 0–1 (1 excluded): TCP sends them again, so
    that a piece with one, and all behind it, come ``RESEND_MS`` later."""


class Pacer:
    """When the pieces of one direction of one connection are due. One thread."""

    def __init__(self, seed: str) -> None:
        """Begin."""
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
        due_s = now_s + (shape.delay_ms + jitter_ms + self._resent_ms(shape, size_bytes)) / 1000.0
        if shape.bytes_per_s > 0.0:
            # the wire is busy until then; a piece has left when its last byte has
            begins_s = max(self._free_at_s, now_s)
            self._free_at_s = begins_s + size_bytes / shape.bytes_per_s
            due_s += self._free_at_s - now_s
        self._last_due_s = max(self._last_due_s, due_s)
        return self._last_due_s

    def _resent_ms(self, shape: LinkShape, size_bytes: int) -> float:
        if not shape.loss_ratio:
            return 0.0
        segments = max(1, -(-size_bytes // SEGMENT_BYTES))
        chance = 1.0 - (1.0 - shape.loss_ratio) ** segments
        waited_ms, wait_ms = 0.0, RESEND_MS
        while self._random.random() < chance:
            waited_ms, wait_ms, chance = waited_ms + wait_ms, 2 * wait_ms, shape.loss_ratio
        return waited_ms
