"""What the fleet's devices do."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from walle_stream.events import Event, Kind
from walle_stream.types import partition_of

PARTITIONS: Final = 16
"""Of the pipeline: the default."""

FILL_EVENTS: Final = 5
"""Events of a device until it rests."""

START_MS: Final = 1_767_225_600_000
HOT_DEVICE: Final = "hot"

_BLOCK: Final = 1_000
_VISIT: Final[tuple[tuple[Kind, dict[str, Any]], ...]] = (
    ("page_enter", {"item": "item-1", "price": 999}),
    *[("page_scroll", {"depth": depth / 4}) for depth in range(1, 5)],
    *[("exposure", {"item": f"item-{place}", "place": place}) for place in range(3)],
    ("click", {"item": "item-2", "widget": "cart"}),
    ("page_exit", {"item": "item-1"}),
)

type Mix = Literal["alone", "even", "hot"]
"""The others at half the rate; at the whole; at half, and one device with the other half."""

type Pieces = list[tuple[int, list[Event]]]
"""Events of partitions, each partition's in its order."""


def name_of(number: int) -> str:
    """Return the id of a device."""
    return f"device-{number:07d}"


def event_of(
    device: str, kind: Kind, page: tuple[str, str], time_ms: int, contents: dict[str, Any]
) -> Event:
    """Make an event that arrives when it happens."""
    return Event(device, kind, kind, *page, time_ms, time_ms, contents)


def fill(devices: int) -> Iterator[Pieces]:
    """Bring every device to rest with state, an open page and a live cursor.

    A page that ended left state behind; of the next one, the last event begins
    what ``wants`` waits for.
    """
    for first in range(0, devices, _BLOCK):
        by_partition: dict[int, list[Event]] = {}
        for number in range(first, min(first + _BLOCK, devices)):
            device, at_ms = name_of(number), START_MS + first
            home = by_partition.setdefault(partition_of(device, PARTITIONS), [])
            feed, item = ("feed", "1"), ("item", "2")
            home += [
                event_of(device, "page_enter", feed, at_ms, {"item": "none"}),
                event_of(device, "page_exit", feed, at_ms + 100, {}),
                event_of(device, "page_enter", item, at_ms + 200, {"item": "item-1", "price": 9}),
                event_of(device, "page_scroll", item, at_ms + 300, {"depth": 0.5}),
                event_of(device, "exposure", item, at_ms + 400, {"item": "item-2", "place": 1}),
            ]
        yield sorted(by_partition.items())


def touch(number: int, devices: int, kind: Kind = "page_scroll") -> tuple[int, Event]:
    """Return a partition and an event on the open page of one of its devices."""
    device = name_of(number)
    # behind all of the fill, before any time-out
    time_ms = START_MS + devices + 10_000
    contents = {"item": "item-2", "widget": "cart", "depth": 0.75}
    return partition_of(device, PARTITIONS), event_of(
        device, kind, ("item", "2"), time_ms, contents
    )


def traffic(devices: int, mix: Mix) -> Iterator[Event]:
    """Visit item pages for ever, in turn; ingest and event times are not set.

    Args:
        devices: Number of devices that take turns.
        mix: Whether there is a hot device beside them; ``alone`` is what
            the others do in ``hot``.
    """
    done = [number % len(_VISIT) for number in range(devices)]
    hot = 0
    while True:
        for number in range(devices):
            yield _step(name_of(number), done[number])
            done[number] += 1
            if mix == "hot":
                yield _step(HOT_DEVICE, hot)
                hot += 1


def _step(device: str, done: int) -> Event:
    visit, at = divmod(done, len(_VISIT))
    kind, contents = _VISIT[at]
    return event_of(device, kind, ("item", str(visit)), 0, dict(contents))
