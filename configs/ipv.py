"""Item page view (IPV): a user's actions on one item's page, as a feature at its exit.

Each view of a video page gives one feature, counted per device in the order of
exits. With it goes an encoding of 128 bytes: 32 little-endian float32 that a
ranking model reads without parsing. The encoder is a fixed function; a trained
one can take its place.
"""

import struct
from hashlib import blake2b
from math import log1p

FEED_ACTIONS = ("like", "follow", "comment", "forward", "hate", "profile")
NO_CLICKS = (0, 0, 0, 0, 0, 0)


def run(ctx, page):
    """Add one finished page view to the device's history and emit its feature."""
    if not page.is_complete:
        return  # the enter of this exit is missing, so nothing can be measured
    # tuples (id, kind, time, ingest time, contents) are faster than event objects, and this
    # runs for every view of every device
    rows = page.rows
    enter, leave = rows[0][4] or {}, rows[-1][4] or {}
    enter_ms, exit_ms = rows[0][2], rows[-1][2]
    item_id = enter["item"]
    dwell_ms = exit_ms - enter_ms
    duration_ms = enter.get("duration_ms", 0)

    clicks = {}
    for _, kind, _, _, contents in rows:
        if kind == "click":
            widget = contents["widget"]
            clicks[widget] = clicks.get(widget, 0) + 1

    # [session index, page index, exit time of the last view]
    state = ctx.state
    session = state.get("session")
    if session is None:
        session_index, page_index = 0, 0
    elif enter_ms - session[2] > ctx.config["session_gap_ms"]:
        session_index, page_index = session[0] + 1, 0
    else:
        session_index, page_index = session[0], session[1] + 1
    state.put("session", [session_index, page_index, exit_ms])

    views_key = f"views:{item_id}"
    view_count = state.get(views_key, 0) + 1
    state.put(views_key, view_count)

    feature = {
        "device_id": ctx.device_id,
        "item_id": item_id,
        "page_instance": page.instance,
        "entry": enter["entry"],
        "enter_time_ms": enter_ms,
        "exit_time_ms": exit_ms,
        "dwell_ms": dwell_ms,
        "play_ratio": round(dwell_ms / duration_ms, 4) if duration_ms else None,
        "clicks": clicks,
        "profile_stay_ms": leave.get("profile_stay_ms", 0),
        "comment_stay_ms": leave.get("comment_stay_ms", 0),
        "session_index": session_index,
        "page_index": page_index,
        "item_view_count": view_count,
    }
    ctx.emit(feature, encoding=encode(feature))


def encode(feature):
    """Return 32 float32: 16 for behaviour and time, 16 for the item's hash."""
    clicks = feature["clicks"]
    counts = [clicks.get(action, 0) for action in FEED_ACTIONS] if clicks else NO_CLICKS
    enter_hours = feature["enter_time_ms"] // 3_600_000
    item = blake2b(feature["item_id"].encode(), digest_size=16).digest()
    return struct.pack(
        "<32f",
        log1p(feature["dwell_ms"]),
        feature["play_ratio"] or 0.0,
        log1p(max(feature["profile_stay_ms"], 0)),
        log1p(max(feature["comment_stay_ms"], 0)),
        log1p(feature["session_index"]),
        log1p(feature["page_index"]),
        log1p(feature["item_view_count"]),
        sum(counts),
        *counts,
        enter_hours % 24,
        enter_hours // 24 % 7,
        *item,
    )
