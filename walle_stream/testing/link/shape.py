"""Delay, jitter, rate and loss of a link's direction."""

import random
from enum import Enum
from typing import Final

import msgspec

SEGMENT_BYTES: Final = 1_448
"""Payload of a TCP segment over Ethernet."""

RESEND_MS: Final = 200.0
"""Time until a lost segment is sent again, doubled for each further loss: Linux's shortest timeout.
A request is followed only by its answer, so no later segment reveals the loss sooner."""


class Direction(Enum):
    """Direction of a link."""

    UP = "up"
    """From the client to the target."""
    DOWN = "down"
    """From the target to the client."""


UP: Final = Direction.UP
DOWN: Final = Direction.DOWN


class LinkShape(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a healthy direction."""

    delay_ms: float = 0.0
    """Delay of every piece, ≥ 0."""
    jitter_ms: float = 0.0
    """Largest extra delay, random for each piece; the order is kept, as in TCP."""
    bytes_per_s: float = 0.0
    """Largest rate of a connection; 0 for no limit."""
    loss_ratio: float = 0.0
    """Share of the segments that the network loses, 0–1 (1 excluded). TCP sends them again, so a
    piece with a lost segment, and all later pieces, arrive ``RESEND_MS`` later."""


class Pacer:
    """Due times of the pieces in one direction of a connection. For one thread."""

    def __init__(self, seed: str) -> None:
        """Seed the jitter and the losses."""
        # needs repeatability, not secrecy
        self._random = random.Random(seed)  # noqa: S311
        self._last_due_s = 0.0
        self._free_at_s = 0.0

    def due_s(self, shape: LinkShape, now_s: float, size_bytes: int) -> float:
        """Return the due time of a piece that arrives now, never before that of the previous piece.

        Args:
            shape: Current shape of the direction.
            now_s: Time of a monotonic clock.
            size_bytes: Size of the piece.
        """
        jitter_ms = self._random.uniform(0.0, shape.jitter_ms)
        due_s = now_s + (shape.delay_ms + jitter_ms + self._resent_ms(shape, size_bytes)) / 1000.0
        if shape.bytes_per_s > 0.0:
            # the wire is busy until then; a piece is sent when its last byte is sent
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
