"""Records of all sizes over connections that are open already, one at a time."""

import random
import time
from contextlib import ExitStack, closing
from typing import Any, Final

from vm_parts.measuring import distribution

from tunnel_parts.ends import Ends, Trip, open_ends
from tunnel_parts.network import Reach, open_network
from tunnel_parts.payload import feature

_WARM_UP: Final = 30
# at most between two records, so that no two clocks run in step; over a link the device's next
# question for messages is at the broker, or on its way there
_PAUSE_MS: Final = 4.0
_LINK_PAUSE_MS: Final = 100.0


def measure_warm(
    reach: Reach, way: str, who: list[str], sizes: list[int], samples: int, seed: int
) -> list[dict[str, Any]]:
    """Send records of all sizes in a random order, everybody's in turn.

    Args:
        reach: Where the broker is.
        way: ``up`` or ``down``.
        who: ``ours``, ``bare`` or both.
        sizes: In bytes, before compression.
        samples: Of each size and each of ``who``.
        seed: Of order, pauses and contents.

    Returns:
        A row for each size and each of ``who``: ``way``, ``who``, ``size``,
        ``received_ms`` and ``acked_ms`` as distributions with ``max``.
    """
    rng = random.Random(seed)
    plan = [(name, size) for name in who for size in sizes for _ in range(samples)]
    rng.shuffle(plan)
    pause_ms = _PAUSE_MS if reach.link == "loopback" else _LINK_PAUSE_MS
    # the first connect and whatever else is made once
    plan[:0] = [(name, sizes[place % len(sizes)]) for place in range(_WARM_UP) for name in who]
    trips: dict[tuple[str, int], list[Trip]] = {}
    with ExitStack() as stack:
        ends: dict[str, Ends] = {}
        for name in who:
            network = stack.enter_context(open_network(reach))
            ends[name] = stack.enter_context(closing(open_ends(name, way, network)))
        for place, (name, size) in enumerate(plan):
            made = ends[name].trip(feature(rng, size))
            if place >= _WARM_UP * len(who):
                trips.setdefault((name, size), []).append(made)
            time.sleep(rng.random() * pause_ms / 1e3)
    return [
        {
            "way": way,
            "who": name,
            "size": size,
            "received_ms": shown([each.received_ms for each in found]),
            "acked_ms": shown([each.acked_ms for each in found]),
        }
        for (name, size), found in sorted(trips.items())
    ]


def shown(values: list[float]) -> dict[str, float]:
    """Return what is kept of some times, milliseconds."""
    return {**distribution(values), "max": round(max(values), 3)}
