"""The IPV features of a KuaiRand feed, recomputed in plain Python.

Written from the reference mapping alone; shares no code with the pipeline: no
trie, no VM, no store, no event objects, no expression language.
"""

import csv
import gzip
import heapq
from pathlib import Path
from typing import Any

ACTIONS = (
    ("is_like", "like"),
    ("is_follow", "follow"),
    ("is_comment", "comment"),
    ("is_forward", "forward"),
    ("is_hate", "hate"),
    ("is_profile_enter", "profile"),
)
SESSION_GAP_MS = 1_800_000


def recompute(path: Path) -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    """Return the counts of the feed and, per device, its features in order."""
    counts = dict.fromkeys(
        ("source_rows", "duplicate_rows", "late_rows", "accepted_rows", "events", "page_sequences"),
        0,
    )
    seen: set[tuple[str, str, int]] = set()
    exits: list[tuple[int, int, dict[str, str]]] = []
    pending: list[int] = []  # event times not released yet
    released = -1
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    for number, row in enumerate(csv.DictReader(text.decode().splitlines()), start=1):
        counts["source_rows"] += 1
        time_ms, play_ms = int(row["time_ms"]), int(row["play_time_ms"])
        identity = (row["user_id"], row["video_id"], time_ms)
        if identity in seen:
            counts["duplicate_rows"] += 1
            continue
        seen.add(identity)
        if time_ms < released:
            counts["late_rows"] += 1
            continue
        counts["accepted_rows"] += 1
        actions = [name for column, name in ACTIONS if row[column] == "1"]
        times = [time_ms]
        if row["is_click"] == "1":
            times.append(time_ms)
        times += [
            time_ms + play_ms * k // (len(actions) + 1) if play_ms > 0 else time_ms
            for k in range(1, len(actions) + 1)
        ]
        if play_ms > 0:
            times += [time_ms, time_ms + play_ms]
            exits.append((time_ms + play_ms, number, row))
            counts["page_sequences"] += 1
        counts["events"] += len(times)
        for moment in times:
            heapq.heappush(pending, moment)
        while pending and pending[0] <= time_ms:
            released = max(released, heapq.heappop(pending))
    return counts, _fold(exits)


def _fold(exits: list[tuple[int, int, dict[str, str]]]) -> dict[str, list[dict[str, Any]]]:
    features: dict[str, list[dict[str, Any]]] = {}
    views: dict[tuple[str, str], int] = {}
    for exit_ms, _, row in sorted(exits, key=lambda item: item[:2]):
        device, item = row["user_id"], row["video_id"]
        enter_ms, duration_ms = int(row["time_ms"]), int(row["duration_ms"])
        history = features.setdefault(device, [])
        session_index = page_index = 0
        if history:
            before = history[-1]
            session_index, page_index = before["session_index"], before["page_index"] + 1
            if enter_ms - before["exit_time_ms"] > SESSION_GAP_MS:
                session_index, page_index = session_index + 1, 0
        views[device, item] = views.get((device, item), 0) + 1
        history.append(
            {
                "device_id": device,
                "item_id": item,
                "page_instance": f"{item}@{enter_ms}",
                "entry": f"tab:{row['tab']}",
                "enter_time_ms": enter_ms,
                "exit_time_ms": exit_ms,
                "dwell_ms": exit_ms - enter_ms,
                "play_ratio": round((exit_ms - enter_ms) / duration_ms, 4) if duration_ms else None,
                "clicks": {name: 1 for column, name in ACTIONS if row[column] == "1"},
                "profile_stay_ms": int(row["profile_stay_time"]),
                "comment_stay_ms": int(row["comment_stay_time"]),
                "session_index": session_index,
                "page_index": page_index,
                "item_view_count": views[device, item],
            }
        )
    return features
