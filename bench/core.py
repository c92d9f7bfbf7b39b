"""What an event costs in the core, by what wakes a task: make bench-core.

The core is what a partition does with events before any script runs: their row of the
journal, page sequences, trigger trie, commands. A trigger on every click, on pages of any
length, stands beside a trigger on the exit alone, in turns, in CPU time.
"""

import argparse
import gc
import os
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, Final

from apart import ROOT
from console import keep, show, surroundings
from vm_parts.tables import Table, bars_table

from walle_stream.events import Event
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import SetDefinition
from walle_stream.wire.event_batch import EventBatch

LENGTHS: Final = (10, 100, 1_000)
TRIGGERS: Final = ("page_exit", "click")
MOST: Final = 1.5
"""Bar: how many times the cost of an exit's trigger a click's may have, on the longest pages."""

_BATCH: Final = 1_000
_DEVICES: Final = 20


def main() -> int:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/core.json")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    gc.disable()
    rounds = [
        {
            str(length): {trigger: cost_us(trigger, length, options.events) for trigger in TRIGGERS}
            for length in LENGTHS
        }
        for _ in range(options.rounds)
    ]
    result = {"bench": "core", "seed": 0, "events": options.events, "batch": _BATCH}
    result["rounds"] = rounds
    result |= surroundings(load)
    result["bars"] = bars(result)
    show(tables(result))
    keep(result, options.json, "")
    return 0


def cost_us(trigger: str, length: int, count: int) -> dict[str, float]:
    """Return what an event costs, microseconds of CPU: the machine alone, and with the journal.

    Args:
        trigger: The event id that wakes the one task.
        length: Events of a page, its enter and its exit among them.
        count: How many events.
    """
    definition = SetDefinition({"t": [[trigger]]}, SequencePolicy())
    machine = PartitionMachine(lambda _: definition)
    alone = whole = 0.0
    for events in _batches(length, count):
        began = time.process_time()
        batch = EventBatch(events)
        batch.encoded  # noqa: B018 - made once, here
        between = time.process_time()
        machine.number += 1
        for device_id in machine.absent(batch):
            machine.activate(device_id, None, tuple)
        machine.take(batch)
        machine.mark_committed()
        ended = time.process_time()
        whole += ended - began
        alone += ended - between
    return {"machine": 1e6 * alone / count, "core": 1e6 * whole / count}


def _batches(length: int, count: int) -> Iterable[list[Event]]:
    made: list[Event] = []
    for number in range(count):
        page, place = divmod(number, length)
        kind = {0: "page_enter", length - 1: "page_exit"}.get(place, "click")
        contents = {"item": f"v{place % 50}", "widget": "like", "price": place * 0.5}
        device = f"device-{page % _DEVICES}"
        made.append(Event(device, kind, kind, "video", f"v@{page}", number, number, contents))
        if len(made) == _BATCH or number == count - 1:
            yield made
            made = []


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for."""
    longest = str(LENGTHS[-1])
    made = []
    for part in ("core", "machine"):
        ratio = median(
            each[longest]["click"][part] / each[longest]["page_exit"][part]
            for each in result["rounds"]
        )
        made.append(
            {
                "name": f"click against exit on pages of {longest} events, {part}",
                "bar": f"<= {MOST} times",
                "value": round(ratio, 2),
                "met": ratio <= MOST,
                "note": "",
            }
        )
    return made


def tables(result: dict[str, Any]) -> list[Table]:
    """Return what was measured, for a terminal and the report."""
    rows = [
        (
            f"{length} events a page, trigger {trigger}",
            *(
                f"{median(each[str(length)][trigger][part] for each in result['rounds']):.2f}"
                for part in ("machine", "core")
            ),
        )
        for length in LENGTHS
        for trigger in TRIGGERS
    ]
    title = "Microseconds of CPU an event, without runs of scripts"
    head = ("", "sequence and trie", "with the journal's row")
    return [Table(title, head, rows, ""), bars_table(result["bars"])]


if __name__ == "__main__":
    raise SystemExit(main())
