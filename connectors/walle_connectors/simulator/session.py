"""One visit of one device: pages that open within each other, and the events there.

A visit resembles people's behaviour. The visitor scrolls through the feed, opens an item, looks at
it, and sometimes puts it into the cart or buys it. Sometimes a further item is opened from there
and the first one is left only later (pages interleave). Sometimes the app crashes before a page's
end is written (no exit).
"""

from random import Random
from typing import Any, Final, NamedTuple

from walle_connectors.simulator.model import SimulatorModel

ENTRIES: Final = ("feed", "search", "recommended")
"""Pages from which an item was opened."""

# probabilities of clicks in one view of an item
_CLICKS: Final = (("picture", 0.6), ("reviews", 0.3), ("favourite", 0.12), ("cart", 0.1))
_BUYS: Final = 0.4
_OPENS_ANOTHER: Final = 0.1
_LEAVES_FIRST: Final = 0.5
_DEEPEST: Final = 2


class Happening(NamedTuple):
    """An event when it happens, before it travels."""

    kind: str
    page: str
    instance: str
    time_ms: int
    contents: dict[str, Any]


class Visit:
    """One visit; ``happenings`` are in the order of their times."""

    def __init__(self, model: SimulatorModel, random: Random, number: int, start_ms: int) -> None:
        """Walk through the shop; the device's visit number is part of page instances."""
        self._model = model
        self._random = random
        self._number = number
        self._now_ms = start_ms
        self._pages = 0
        self.happenings: list[Happening] = []
        self._walk()

    def _walk(self) -> None:
        random = self._random
        feed = self._enter("feed", {"channel": random.choice(("home", "sale", "food", "toys"))})
        for _ in range(1 + int(random.expovariate(0.4))):
            for _ in range(random.randint(2, 6)):
                self._add(
                    "exposure", "feed", feed, {"item": self._item(), "at": random.randint(0, 9)}
                )
            self._add("page_scroll", "feed", feed, {"depth": round(random.random(), 3)})
            self._look_at(self._item(), random.choice(ENTRIES[:2]), feed, depth=0)
        self._exit("feed", feed, {})

    def _look_at(self, item: str, entry: str, feed: str, depth: int) -> None:
        random = self._random
        if entry == "feed":
            self._add("click", "feed", feed, {"item": item, "widget": "open"})
        page = self._enter(
            "item", {"item": item, "entry": entry, "price": random.randint(99, 99_999)}
        )
        reached = 0.0
        for _ in range(random.randint(4, 8)):
            reached = min(reached + random.random() * 0.3, 1.0)
            self._add("page_scroll", "item", page, {"item": item, "depth": round(reached, 3)})
        shown = [self._item() for _ in range(random.randint(3, 6))]
        for place, other in enumerate(shown):
            self._add("exposure", "item", page, {"item": other, "at": place})
        for widget, chance in _CLICKS:
            if random.random() < chance:
                self._add("click", "item", page, {"item": item, "widget": widget})
                if widget == "cart" and random.random() < _BUYS:
                    self._add("click", "item", page, {"item": item, "widget": "buy"})
        if depth < _DEEPEST and random.random() < _OPENS_ANOTHER:
            # nested; half of the time the outer page ends first
            other = random.choice(shown)
            self._add("click", "item", page, {"item": other, "widget": "open"})
            ends_first = random.random() < _LEAVES_FIRST
            if ends_first:
                inner = self._enter("item", {"item": other, "entry": "recommended", "price": 999})
                self._exit("item", page, {"item": item})
                self._add("page_scroll", "item", inner, {"item": other, "depth": 0.2})
                self._exit("item", inner, {"item": other})
                return
            self._look_at(other, "recommended", feed, depth + 1)
        self._exit("item", page, {"item": item})

    def _enter(self, page: str, contents: dict[str, Any]) -> str:
        self._pages += 1
        instance = f"{self._number}.{self._pages}"
        self._add("page_enter", page, instance, contents)
        return instance

    def _exit(self, page: str, instance: str, contents: dict[str, Any]) -> None:
        if self._random.random() >= self._model.missing_exits:
            self._add("page_exit", page, instance, contents)

    def _add(self, kind: str, page: str, instance: str, contents: dict[str, Any]) -> None:
        self._now_ms += int(self._random.lognormvariate(6.6, 1.0)) + 40
        self.happenings.append(Happening(kind, page, instance, self._now_ms, contents))

    def _item(self) -> str:
        # most visitors look at a few popular items
        share = self._random.random() ** 3
        return f"item-{int(share * self._model.items):06d}"
