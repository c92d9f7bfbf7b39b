"""The feature of a finished view of an item, and its encoding."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from peers_parts.shop_job import Page

_DEPTHS: Final = (0.2, 0.4, 0.6, 0.8, 1.0)


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
        item_views: Number of the device's views of this item, including this one.
        device_views: Number of the device's views of items' pages.

    Returns:
        JSON with ``feature`` and ``encoding`` (base64), without the line's end.
    """
    rows, begin_ms = page.rows, page.enter_ms
    _, _, entered = rows[0]
    timeline: list[Any] = []
    scrolls: list[Any] = []
    seen: list[dict[str, Any]] = []
    clicks: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    reached: list[int | None] = []
    shown: dict[str, Any] | None = None
    longest_ms, deepest, last_ms = 0, 0.0, begin_ms
    for kind, time_ms, contents in rows:
        at_ms = time_ms - begin_ms
        longest_ms = max(longest_ms, time_ms - last_ms)
        last_ms = time_ms
        timeline.append([at_ms, kind])
        if shown is not None:
            shown["seen_ms"] = at_ms - shown["at_ms"]
            shown = None
        if kind == "exposure":
            shown = {"item": contents["item"], "place": contents["at"], "at_ms": at_ms}
            seen.append(shown)
        elif kind == "page_scroll":
            depth = contents["depth"]
            scrolls.append([at_ms, depth])
            if depth > deepest:
                deepest = depth
                while len(reached) < len(_DEPTHS) and depth >= _DEPTHS[len(reached)]:
                    reached.append(at_ms)
        elif kind == "click":
            widget = contents["widget"]
            counts[widget] = counts.get(widget, 0) + 1
            clicks.append({"widget": widget, "item": contents["item"], "at_ms": at_ms})
    reached += [None] * (len(_DEPTHS) - len(reached))
    feature = {
        "device_id": device_id,
        "item_id": entered["item"],
        "page_instance": page.instance,
        "entry": entered["entry"],
        "price": entered["price"],
        "enter_time_ms": begin_ms,
        "exit_time_ms": last_ms,
        "cause": page.end[1],
        "dwell_ms": last_ms - begin_ms,
        "event_count": len(rows),
        "longest_pause_ms": longest_ms,
        "timeline": timeline,
        "scroll_depth": deepest,
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
