"""The task scripts that every contender runs, and the pages they work on.

The classes are ours (the paper gives no boundaries), by CPU time per run: light
20-100 us, middle 1-5 ms, heavy 50-200 ms.
"""

from random import Random
from typing import Any, Final, NamedTuple

from walle_stream.vm.limits import RunLimits
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program
from walle_stream.vm.results import DeviceGroup, RunInput

LIGHT: Final = """
import struct
from hashlib import blake2b
from math import log1p

ACTIONS = ("like", "follow", "comment", "forward", "profile", "buy")

def run(ctx, page):
    enter = page.events[0]
    clicks = {}
    stays = []
    for event in page.events:
        if event.kind == "click":
            clicks[event.widget] = clicks.get(event.widget, 0) + 1
        stays.append(event.get("stay_ms", 0))
    longest = sorted(stays, reverse=True)[:3]
    stay_by_item = {
        item: sum(event.get("stay_ms", 0) for event in events)
        for item, events in page.key_by("item").items()
    }
    favourites = sorted(stay_by_item, key=lambda item: (-stay_by_item[item], item))[:5]
    session = ctx.state.get("session")
    index = 0 if session is None else session[0] + 1
    ctx.state.put("session", [index, page.exit_time_ms])
    views_key = f"views:{enter.item}"
    views = ctx.state.get(views_key, 0) + 1
    ctx.state.put(views_key, views)
    feature = {
        "device_id": ctx.device_id,
        "item_id": enter.item,
        "page_instance": page.instance,
        "enter_time_ms": page.enter_time_ms,
        "exit_time_ms": page.exit_time_ms,
        "dwell_ms": page.dwell_ms,
        "clicks": clicks,
        "stay_ms": sum(stays),
        "longest_ms": longest,
        "favourites": favourites,
        "page_index": index,
        "item_view_count": views,
        "summary": "{}/{}".format(len(clicks), len(page.events)),
    }
    item = blake2b(enter.item.encode(), digest_size=16).digest()
    counts = [clicks.get(action, 0) for action in ACTIONS]
    encoding = struct.pack(
        "<26f", log1p(page.dwell_ms), log1p(index), log1p(views), log1p(sum(stays)), *counts, *item
    )
    ctx.emit(feature, encoding=encoding)
"""

MIDDLE: Final = """
import json
from hashlib import blake2b

WINDOW = 60

def run(ctx, page):
    rows = []
    for item, events in page.key_by("item").items():
        stays = sorted(event.get("stay_ms", 0) for event in events)
        kinds = {}
        for event in events:
            kinds[event.kind] = kinds.get(event.kind, 0) + 1
        row = {
            "item": item,
            "kinds": kinds,
            "median_ms": stays[len(stays) // 2],
            "total_ms": sum(stays),
            "first_ms": events[0].event_time_ms,
        }
        text = json.dumps(row, sort_keys=True)
        rows.append((row["total_ms"], blake2b(text.encode(), digest_size=8).hexdigest(), row))
    rows.sort(key=lambda row: row[:2], reverse=True)
    start_ms = page.enter_time_ms
    windows = [0] * 64
    for event in page.events:
        windows[(event.event_time_ms - start_ms) // 1_000 % 64] += event.get("stay_ms", 0)
    names = [(event.item, event.widget) for event in page.events]
    pairs = {}
    for at, (item, widget) in enumerate(names):
        for other, after in names[at + 1 : at + WINDOW]:
            if item != other:
                pair = (item, widget, after)
                pairs[pair] = pairs.get(pair, 0) + 1
    top = sorted(((count, *pair) for pair, count in pairs.items()), reverse=True)
    digest = blake2b(json.dumps(top).encode(), digest_size=16).digest()
    ctx.state.put("pages", ctx.state.get("pages", 0) + 1)
    ctx.emit(
        {
            "device_id": ctx.device_id,
            "top": [row[2] for row in rows[:3]],
            "digests": [row[1] for row in rows],
            "windows": windows,
            "moves": top[:5],
        },
        encoding=digest,
    )
"""

HEAVY: Final = """
import json
from hashlib import blake2b
from math import log1p, sqrt

def run(ctx, page):
    items = [event.item for event in page.events]
    stays = [event.get("stay_ms", 0) for event in page.events]
    pairs = {}
    for at, item in enumerate(items):
        for distance, other in enumerate(items[at + 1 :], start=1):
            if item != other:
                pair = (item, other) if item < other else (other, item)
                pairs[pair] = pairs.get(pair, 0.0) + 1.0 / distance
    weight = {}
    for item, stay_ms in zip(items, stays):
        weight[item] = weight.get(item, 0.0) + log1p(stay_ms)
    ranked = sorted(
        ((round(score / sqrt(weight[a] * weight[b] + 1.0), 6), a, b)
         for (a, b), score in pairs.items()),
        reverse=True,
    )
    digest = blake2b(digest_size=16)
    for score, a, b in ranked:
        digest.update(json.dumps([score, a, b]).encode())
    ctx.state.put("pages", ctx.state.get("pages", 0) + 1)
    ctx.emit(
        {"device_id": ctx.device_id, "top": ranked[:10], "pairs": len(ranked)},
        encoding=digest.digest(),
    )
"""

EMPTY: Final = "def run(ctx, page):\n    return None\n"

RUNAWAYS: Final = {
    "plain loop": "def run(ctx, page):\n    while True:\n        pass\n",
    "catches BaseException": (
        "def run(ctx, page):\n    while True:\n        try:\n            while True:\n"
        "                pass\n        except BaseException:\n            pass\n"
    ),
    "loops in a comprehension": (
        "from itertools import count\n\n"
        "def run(ctx, page):\n    return [n for n in count() if n < 0]\n"
    ),
}

type Batch = list[DeviceGroup]


class TaskClass(NamedTuple):
    """A class of tasks by amount of computation."""

    name: str
    source: str
    events_per_page: int
    batch_size: int
    """Runs per call."""
    cpu_us: tuple[float, float]
    """Bounds of the class, CPU time per run."""
    paper_percent: float
    """The paper's improvement of this class."""


CLASSES: Final = (
    TaskClass("light", LIGHT, 20, 100, (20.0, 100.0), 52.11),
    TaskClass("middle", MIDDLE, 120, 10, (1_000.0, 5_000.0), 144.36),
    TaskClass("heavy", HEAVY, 800, 1, (50_000.0, 200_000.0), 25.70),
)

_WIDGETS: Final = ("like", "follow", "comment", "forward", "profile", "buy")
_KINDS: Final = ("click", "exposure", "page_scroll")
_ITEMS: Final = 40
_RUNS_PER_DEVICE: Final = 10


def make_batch(random: Random, runs: int, events: int) -> Batch:
    """Make the groups of one call, ten runs a device.

    Args:
        random: Where the contents come from.
        runs: How many.
        events: Rows of each page, ≥ 1.
    """
    batch: Batch = []
    for first in range(0, runs, _RUNS_PER_DEVICE):
        inputs: list[RunInput] = [
            (number + 1, 1_500, _page(random, number, events))
            for number in range(first, min(first + _RUNS_PER_DEVICE, runs))
        ]
        batch.append((f"device-{first // _RUNS_PER_DEVICE}", {}, inputs))
    return batch


def compiled(source: str, limits: RunLimits | None = None) -> CompiledProgram:
    """Return a script as a VM takes it."""
    return compile_program(program(source, limits))


def program(source: str, limits: RunLimits | None = None) -> TaskProgram:
    """Return a script as a pool takes it.

    Args:
        source: Its text.
        limits: Bounds of one run; an hour when not given, because a busy machine must
            not stop an honest task.
    """
    given = limits or RunLimits(wall_time_ms=3_600_000)
    return TaskProgram("bench", "v1", source, "bench.py", {}, given)


def _page(random: Random, number: int, events: int) -> tuple[Any, ...]:
    now_ms = 1_700_000_000_000 + number * 1_000
    enter_ms = now_ms
    rows = []
    for at in range(events):
        kind = random.choice(_KINDS)
        kind = {0: "page_enter", events - 1: "page_exit"}.get(at, kind)
        contents = {
            "item": f"v{random.randrange(_ITEMS)}",
            "widget": random.choice(_WIDGETS),
            "stay_ms": random.randrange(5_000),
        }
        rows.append((kind, kind, now_ms, now_ms, contents))
        now_ms += random.randrange(1, 400)
    return ("video", f"v@{number}", "exit", enter_ms, None, rows)
