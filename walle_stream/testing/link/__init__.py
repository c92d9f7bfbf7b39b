"""A network link in user space: a TCP relay whose faults a test controls.

The link forwards between a listening port and a target with delay, jitter and a limited rate. At
any time it can stall, be cut and be healed, in both directions or one (half-open), or reset all
connections. It needs no privileges and no packet filter.

On the command line: ``python -m walle_stream.testing.link``; see docs/testing.md.
"""

from walle_stream.testing.link.relay import Link
from walle_stream.testing.link.shape import DOWN, UP, Direction, LinkShape

__all__ = ["DOWN", "UP", "Direction", "Link", "LinkShape"]
