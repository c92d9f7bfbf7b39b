"""A network link in user space: a TCP relay whose faults a test controls.

Between a listening port and a target it forwards with delay, jitter and a rate,
and can stall, be cut (both ways, or one: half-open) and be healed, or reset all
connections, at any time, per direction. No privileges, no packet filter.

For people: ``python -m walle_stream.testing.link``; see docs/testing.md.
"""

from walle_stream.testing.link.relay import Link
from walle_stream.testing.link.shape import DOWN, UP, Direction, LinkShape

__all__ = ["DOWN", "UP", "Direction", "Link", "LinkShape"]
