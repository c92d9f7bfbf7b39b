"""The reference mapping, recomputed in plain Python from its description."""

import csv
import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from walle_connectors.files import FilesModel, FilesSource
from walle_stream.ports import Source
from walle_stream.testing.source_log import add, new_log, read_out
from walle_stream.types import partition_of

ROOT = Path(__file__).parents[4]
SAMPLE = ROOT / "configs/samples/kuairand_feed.csv.gz"
FEED = ROOT.parent / "shared/data/kuairand/feed.csv.gz"
ACTIONS = {
    "is_like": "like",
    "is_follow": "follow",
    "is_comment": "comment",
    "is_forward": "forward",
    "is_hate": "hate",
    "is_profile_enter": "profile",
}


def source_over(path: Path) -> Source:
    """Return the source of the shipped pipeline over another file."""
    text = (ROOT / "configs/ipv.yaml").read_text(encoding="utf-8")
    pipeline = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Pipeline")
    keys = pipeline["spec"]["source"] | {"path": path}
    del keys["connector"]
    return FilesSource(FilesModel.model_validate(keys))


def row_events(row: dict[str, str]) -> list[tuple[Any, ...]]:
    time_ms, play_ms = int(row["time_ms"]), int(row["play_time_ms"])
    feed, item = f"tab:{row['tab']}", row["video_id"]
    visit = f"{item}@{time_ms}"
    found: list[tuple[Any, ...]] = [(time_ms, "exposure", feed, "", {"item": item})]
    if row["is_click"] == "1":
        found.append((time_ms, "click", feed, "", {"item": item, "widget": "open"}))
    widgets = [widget for column, widget in ACTIONS.items() if row[column] == "1"]
    if play_ms > 0:
        entered = {"item": item, "entry": feed, "duration_ms": int(row["duration_ms"])}
        found.append((time_ms, "page_enter", "video", visit, entered))
    for k, widget in enumerate(widgets, start=1):
        page, at_ms = (feed, ""), time_ms
        if play_ms > 0:
            page, at_ms = ("video", visit), time_ms + play_ms * k // (len(widgets) + 1)
        found.append((at_ms, "click", *page, {"item": item, "widget": widget}))
    if play_ms > 0:
        stays: dict[str, Any] = {
            "item": item,
            "profile_stay_ms": int(row["profile_stay_time"]),
            "comment_stay_ms": int(row["comment_stay_time"]),
        }
        found.append((time_ms + play_ms, "page_exit", "video", visit, stays))
    return found


def naive_events(path: Path) -> dict[int, list[tuple[Any, ...]]]:
    """All events in their order; right for a file that is sorted by time."""
    rows = csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines())
    first: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        first.setdefault((row["user_id"], row["video_id"], row["time_ms"]), row)
    events = [
        (event[0], number, place, row, event)
        for number, row in enumerate(first.values())
        for place, event in enumerate(row_events(row))
    ]
    events.sort(key=lambda each: each[:3])
    parts: dict[int, list[tuple[Any, ...]]] = {partition: [] for partition in range(16)}
    for _, _, _, row, event in events:
        home = partition_of(row["user_id"], 16)
        parts[home].append((row["user_id"], int(row["time_ms"]), *event))
    return parts


def check(path: Path) -> Counter[str]:
    log = new_log(16)
    add(log, read_out(source_over(path).open({}, 16, 500)))
    totals = Counter[str]()
    for partition, wanted in naive_events(path).items():
        own = log[partition]
        found = [
            (e.device_id, e.ingest_time_ms, e.event_time_ms, e.kind, *_rest(e)) for e in own.events
        ]
        assert found == wanted
        totals["events"] += len(found)
        totals["rows"] += own.counts.source_rows
        totals["duplicates"] += own.counts.duplicate_rows
        totals["others"] += own.counts.late_rows + own.counts.dead_letter_rows
        totals["exits"] += sum(event.kind == "page_exit" for event in own.events)
    return totals


def _rest(event: Any) -> tuple[Any, ...]:
    return event.page_id, event.page_instance, event.contents


def test_sample_gives_exactly_the_events_of_the_reference_mapping() -> None:
    assert check(SAMPLE) == {
        "rows": 11_288,
        "duplicates": 154,
        "events": 35_652,
        "exits": 10_026,
        "others": 0,
    }


@pytest.mark.integration
@pytest.mark.slow  # the main job compares its features in the short form
def test_whole_feed_gives_exactly_the_events_of_the_reference_mapping() -> None:
    if not FEED.exists():
        pytest.skip("the KuaiRand feed is not beside this checkout (../shared/data)")
    assert check(FEED) == {
        "rows": 170_073,
        "duplicates": 4_405,
        "events": 545_940,
        "exits": 149_221,
        "others": 0,
    }
