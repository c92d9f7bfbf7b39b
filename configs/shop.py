"""Item page view of a shop: where the visitor came from, what he saw and did there.

One feature of some 850 bytes per finished view of an item's page, and 128 bytes
beside it: 32 little-endian float32 that a ranking model takes as they are. The
encoder is a fixed function for now; a trained one takes its place later.
"""

import struct
from hashlib import blake2b
from itertools import pairwise
from math import log1p

WIDGETS = ("picture", "reviews", "favourite", "cart", "buy", "open")
ENTRIES = ("feed", "search", "recommended")
DEPTHS = 5


def run(ctx, page):
    """Describe one finished view and emit it."""
    if page.page_id != "item" or not page.is_complete:
        return
    enter = page.events[0]
    views_key = f"views:{enter.item}"
    views = ctx.state.get(views_key, 0) + 1
    ctx.state.put(views_key, views)
    total = ctx.state.get("total", 0) + 1
    ctx.state.put("total", total)

    begin_ms = page.enter_time_ms
    scrolls, seen, clicks = [], [], []
    counts = {}
    reached_ms = [None] * DEPTHS
    for event in page.events:
        kind = event.kind
        at_ms = event.event_time_ms - begin_ms
        if kind == "page_scroll":
            depth = event["depth"]
            scrolls.append([at_ms, depth])
            for step in range(DEPTHS):
                if reached_ms[step] is None and depth >= (step + 1) / DEPTHS:
                    reached_ms[step] = at_ms
        elif kind == "exposure":
            seen.append({"item": event.item, "place": event["at"], "at_ms": at_ms})
        elif kind == "click":
            counts[event.widget] = counts.get(event.widget, 0) + 1
            clicks.append({"widget": event.widget, "item": event.item, "at_ms": at_ms})
    times = [event.event_time_ms for event in page.events]
    longest_ms = max(after - before for before, after in pairwise(times))
    feature = {
        "device_id": ctx.device_id,
        "item_id": enter.item,
        "page_instance": page.instance,
        "entry": enter["entry"],
        "price": enter["price"],
        "enter_time_ms": begin_ms,
        "exit_time_ms": page.exit_time_ms,
        "cause": page.cause,
        "dwell_ms": page.dwell_ms,
        "event_count": len(page.events),
        "longest_pause_ms": longest_ms,
        "scroll_depth": max((depth for _, depth in scrolls), default=0.0),
        "scroll_count": len(scrolls),
        "scrolls": scrolls,
        "depth_reached_ms": reached_ms,
        "exposures": seen,
        "clicks": clicks,
        "click_counts": counts,
        "is_favourite": "favourite" in counts,
        "is_in_cart": "cart" in counts,
        "is_bought": "buy" in counts,
        "first_action_ms": clicks[0]["at_ms"] if clicks else None,
        "item_view_count": views,
        "device_view_count": total,
    }
    ctx.emit(feature, encoding=encode(feature))


def encode(feature):
    """Return 32 float32: 16 of behaviour, 16 of the item's hash."""
    counts = feature["click_counts"]
    item = blake2b(feature["item_id"].encode(), digest_size=16).digest()
    entry = feature["entry"]
    return struct.pack(
        "<32f",
        log1p(feature["dwell_ms"]),
        feature["scroll_depth"],
        log1p(feature["scroll_count"]),
        log1p(len(feature["exposures"])),
        log1p(feature["price"]),
        log1p(feature["longest_pause_ms"]),
        log1p(feature["item_view_count"]),
        *[float(entry == name) for name in ENTRIES],
        *[float(counts.get(name, 0)) for name in WIDGETS],
        *[byte / 127.5 - 1.0 for byte in item],
    )
