"""What a finished view of an item is made into, and how it is written down."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from peers_parts.shop_job import Page

_DEPTHS: Final = 5


def _shop_encoder() -> Callable[[dict[str, Any]], bytes]:
    # the encoding's fixed function is the task's own: there is nothing to compare in it
    path = Path(__file__).resolve().parents[2] / "configs" / "shop.py"
    spec = importlib.util.spec_from_file_location("shop_task", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is missing: run from a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    encode: Callable[[dict[str, Any]], bytes] = module.encode
    return encode


_encoding_of = _shop_encoder()
_encode = msgspec.json.Encoder().encode


def describe(device_id: str, page: Page, item_views: int, device_views: int) -> bytes:
    """Make one output line.

    Args:
        device_id: Whose view.
        page: An item's page that ended.
        item_views: How often the device has seen this item, this time included.
        device_views: How many items' pages it has seen.

    Returns:
        JSON with ``feature`` and ``encoding`` (base64), without the line's end.
    """
    rows, begin_ms = page.rows, page.enter_ms
    _, _, entered = rows[0]
    scrolls: list[Any] = []
    seen: list[Any] = []
    clicks: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    reached: list[int | None] = [None] * _DEPTHS
    for kind, time_ms, contents in rows:
        at_ms = time_ms - begin_ms
        if kind == "page_scroll":
            depth = contents["depth"]
            scrolls.append([at_ms, depth])
            for step in range(_DEPTHS):
                if reached[step] is None and depth >= (step + 1) / _DEPTHS:
                    reached[step] = at_ms
        elif kind == "exposure":
            seen.append({"item": contents["item"], "place": contents["at"], "at_ms": at_ms})
        elif kind == "click":
            widget = contents["widget"]
            counts[widget] = counts.get(widget, 0) + 1
            clicks.append({"widget": widget, "item": contents["item"], "at_ms": at_ms})
    feature = {
        "device_id": device_id,
        "item_id": entered["item"],
        "page_instance": page.instance,
        "entry": entered["entry"],
        "price": entered["price"],
        "enter_time_ms": begin_ms,
        "exit_time_ms": rows[-1][1],
        "cause": page.end[1],
        "dwell_ms": rows[-1][1] - begin_ms,
        "event_count": len(rows),
        "longest_pause_ms": max(after[1] - before[1] for before, after in pairwise(rows)),
        "scroll_depth": max((depth for _, depth in scrolls), default=0.0),
        "scroll_count": len(scrolls),
        "scrolls": scrolls,
        "depth_reached_ms": reached,
        "exposures": seen,
        "clicks": clicks,
        "click_counts": counts,
        "is_favourite": "favourite" in counts,
        "is_in_cart": "cart" in counts,
        "is_bought": "buy" in counts,
        "first_action_ms": clicks[0]["at_ms"] if clicks else None,
        "item_view_count": item_views,
        "device_view_count": device_views,
    }
    return _encode({"feature": feature, "encoding": _encoding_of(feature)})


class Views:
    """Counts of one device: its state beside open pages."""

    __slots__ = ("device_id", "items", "total")

    def __init__(self, device_id: str) -> None:
        """Begin with none."""
        self.device_id = device_id
        self.items: dict[str, int] = {}
        self.total = 0

    def lines(self, pages: list[Page]) -> Iterator[bytes]:
        """Count the items' pages among some that ended, and make their output lines."""
        for page in pages:
            if page.page_id == "item":
                item = page.rows[0][2]["item"]
                self.total += 1
                self.items[item] = views = self.items.get(item, 0) + 1
                yield describe(self.device_id, page, views, self.total)
