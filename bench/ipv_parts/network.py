"""When each raw event reaches the cloud: at once, or by a network that is late and forgets."""

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple


class Network(NamedTuple):
    """What happens to events between device and cloud; declared rates."""

    late: float = 0.0
    """Share that arrives up to ``lateness_s`` behind its time."""
    doubled: float = 0.0
    """Share that arrives once more, up to ``lateness_s`` later."""
    lost: float = 0.0
    """Share that never arrives."""
    lateness_s: float = 2.0
    """Of the shop's time, as its own events are late: a feed runs through it many times faster."""


FAULTY: Final = Network(late=0.01, doubled=0.01, lost=0.001)
"""The simulated shop's own rates of late and doubled events, and one in a thousand lost."""


def arrivals(
    count: int, events_per_s: float, network: Network, seed: int, pace: float = 1.0
) -> Iterator[tuple[float, int]]:
    """Plan a feed.

    Args:
        count: Events; number ``i`` happens at ``i / events_per_s`` seconds.
        events_per_s: Number of events in a second.
        network: Faults of the way to the cloud.
        seed: Of what it does.
        pace: Seconds of the shop that pass in a second of the feed.

    Yields:
        (seconds, number of the event), in order of the seconds.
    """
    random = Random(seed)
    lateness_s = network.lateness_s / pace
    plan = []
    for number in range(count):
        at_s = number / events_per_s
        if random.random() < network.lost:
            continue
        late_s = random.random() * lateness_s if random.random() < network.late else 0.0
        plan.append((at_s + late_s, number))
        if random.random() < network.doubled:
            plan.append((at_s + random.random() * lateness_s, number))
    plan.sort()
    yield from plan
