"""Item page view of a shop: the visitor's origin, and what the visitor saw and did.

Each finished view of an item's page gives one feature of about 1.2 kB. With it
goes an encoding of 128 bytes: 32 little-endian float32 that a ranking model
reads without parsing. The encoder is a fixed function; a trained one can take
its place.
"""

from hashlib import blake2b
from math import log1p
from struct import pack

WIDGETS = ("picture", "reviews", "favourite", "cart", "buy", "open")
ENTRIES = ("feed", "search", "recommended")
DEPTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


def run(ctx, page):
    """Describe one finished view and emit it."""
    if not page.is_complete:
        return
    # tuples are faster than event objects, and every event of every page passes here
    rows = page.rows
    enter = rows[0][4]
    begin_ms = last_ms = rows[0][2]
    longest_ms, deepest = 0, 0.0
    timeline, scrolls, seen, clicks, reached_ms, counts = [], [], [], [], [], {}
    shown = None
    for _, kind, time_ms, _, contents in rows:
        at_ms = time_ms - begin_ms
        if time_ms - last_ms > longest_ms:
            longest_ms = time_ms - last_ms
        last_ms = time_ms
        timeline.append([at_ms, kind])
        if shown is not None:
            shown["seen_ms"] = at_ms - shown["at_ms"]  # until the next event
            shown = None
        if kind == "exposure":
            shown = {"item": contents["item"], "place": contents["at"], "at_ms": at_ms}
            seen.append(shown)
        elif kind == "page_scroll":
            depth = contents["depth"]
            scrolls.append([at_ms, depth])
            if depth > deepest:
                deepest = depth
                while len(reached_ms) < len(DEPTHS) and depth >= DEPTHS[len(reached_ms)]:
                    reached_ms.append(at_ms)
        elif kind == "click":
            widget = contents["widget"]
            counts[widget] = counts.get(widget, 0) + 1
            clicks.append({"widget": widget, "item": contents["item"], "at_ms": at_ms})
    reached_ms += [None] * (len(DEPTHS) - len(reached_ms))

    item, state = enter["item"], ctx.state
    views_key = f"views:{item}"
    views = state.get(views_key, 0) + 1
    state.put(views_key, views)
    total = state.get("total", 0) + 1
    state.put("total", total)
    feature = {
        "device_id": ctx.device_id,
        "item_id": item,
        "page_instance": page.instance,
        "entry": enter["entry"],
        "price": enter["price"],
        "enter_time_ms": begin_ms,
        "exit_time_ms": last_ms,
        "cause": page.cause,
        "dwell_ms": last_ms - begin_ms,
        "event_count": len(rows),
        "longest_pause_ms": longest_ms,
        "timeline": timeline,
        "scroll_depth": deepest,
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
    ctx.emit(feature, encode(feature))


def encode(feature):
    """Return 32 float32: 16 for behaviour, 16 for the item's hash."""
    counts = feature["click_counts"]
    hashed = blake2b(feature["item_id"].encode(), digest_size=16).digest()
    entry = feature["entry"]
    return pack(
        "<32f",
        log1p(feature["dwell_ms"]),
        feature["scroll_depth"],
        log1p(feature["scroll_count"]),
        log1p(len(feature["exposures"])),
        log1p(feature["price"]),
        log1p(feature["longest_pause_ms"]),
        log1p(feature["item_view_count"]),
        *[entry == name for name in ENTRIES],
        *[counts.get(name, 0) for name in WIDGETS],
        *[byte / 127.5 - 1.0 for byte in hashed],
    )
