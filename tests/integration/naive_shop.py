"""The item page views of a simulated shop, recomputed in plain Python.

Sequences come from the naive oracle; the features are written from their
description alone: no trie, no VM, no store.
"""

from itertools import pairwise
from typing import Any

import msgspec

from walle_stream.events import Event
from walle_stream.testing.oracles import NaiveSequence
from walle_stream.types import partition_of

TIMEOUT_MS = 1_800_000
ORDER_MS = 2_000


def recompute(lines: list[bytes], partition_count: int) -> dict[str, list[dict[str, Any]]]:
    """Return the features of each device in order.

    Args:
        lines: JSON, in the order of arrival.
        partition_count: Of the data directory: watermarks are a partition's.
    """
    devices: dict[str, NaiveSequence] = {}
    watermarks: dict[int, int] = {}
    for line in lines:
        event = msgspec.json.decode(line, type=Event)
        home = partition_of(event.device_id, partition_count)
        watermarks[home] = max(watermarks.get(home, -1), event.ingest_time_ms)
        device = devices.get(event.device_id)
        if device is None:
            device = NaiveSequence(TIMEOUT_MS, ORDER_MS, device_id=event.device_id)
            devices[event.device_id] = device
        device.accept(event, watermarks[home])
    features = {}
    for device_id, device in devices.items():
        device.finish()
        made = features_of(device_id, device.records)
        if made:
            features[device_id] = made
    return features


def features_of(device_id: str, records: list[Any]) -> list[dict[str, Any]]:
    """Return one device's features."""
    features: list[dict[str, Any]] = []
    for name, *rest in records:
        if name != "event" or rest[1] is None:
            continue
        page_id, instance, _, cause, enter_ms, rows = rest[1]
        if page_id != "item" or cause == "open":
            continue
        item = rows[0][4]["item"]
        scrolls = [[row[2] - enter_ms, row[4]["depth"]] for row in rows if row[1] == "page_scroll"]
        clicks = [
            {"widget": row[4]["widget"], "item": row[4]["item"], "at_ms": row[2] - enter_ms}
            for row in rows
            if row[1] == "click"
        ]
        widgets = [click["widget"] for click in clicks]
        features.append(
            {
                "device_id": device_id,
                "item_id": item,
                "page_instance": instance,
                "entry": rows[0][4]["entry"],
                "price": rows[0][4]["price"],
                "enter_time_ms": enter_ms,
                "exit_time_ms": rows[-1][2],
                "cause": cause,
                "dwell_ms": rows[-1][2] - enter_ms,
                "event_count": len(rows),
                "longest_pause_ms": max(b[2] - a[2] for a, b in pairwise(rows)),
                "timeline": [[row[2] - enter_ms, row[1]] for row in rows],
                "scroll_depth": max((depth for _, depth in scrolls), default=0.0),
                "scroll_count": len(scrolls),
                "scrolls": scrolls,
                "depth_reached_ms": [
                    next((at for at, depth in scrolls if depth >= step / 5), None)
                    for step in (1, 2, 3, 4, 5)
                ],
                "exposures": [
                    {
                        "item": row[4]["item"],
                        "place": row[4]["at"],
                        "at_ms": row[2] - enter_ms,
                        "seen_ms": after[2] - row[2],
                    }
                    for row, after in pairwise(rows)
                    if row[1] == "exposure"
                ],
                "clicks": clicks,
                "click_counts": {
                    widget: widgets.count(widget) for widget in dict.fromkeys(widgets)
                },
                "is_favourite": "favourite" in widgets,
                "is_in_cart": "cart" in widgets,
                "is_bought": "buy" in widgets,
                "first_action_ms": clicks[0]["at_ms"] if clicks else None,
                "item_view_count": 1 + sum(each["item_id"] == item for each in features),
                "device_view_count": len(features) + 1,
            }
        )
    return features
