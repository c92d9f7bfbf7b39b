"""The effect of a device with half of all events on the latency of the others."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vm_parts.measuring import distribution

from fleet_parts.events import HOT_DEVICE, PARTITIONS, Mix, Pieces, traffic
from fleet_parts.running import Fleet
from fleet_parts.source import Stage
from walle_stream.events import Event
from walle_stream.types import partition_of

_WARM_UP_SHARE = 0.2


class Load(NamedTuple):
    """How much arrives."""

    devices: int
    """Beside the hot one."""
    events_per_s: int
    """Of all together; of half of them where the others are alone."""
    seconds: float
    tick_s: float = 0.02
    """What came meanwhile arrives at once."""


def measure_hot(load: Load, data_dir: Path, mix: Mix) -> dict[str, Any]:
    """Let events arrive by the wall clock and take the others' exit-to-commit times.

    Args:
        load: How much arrives.
        data_dir: Where; a new one.
        mix: Whose events.
    """
    result: dict[str, Any] = {}

    def script(stage: Stage) -> Iterator[Pieces]:
        events = traffic(load.devices, mix)
        homes: dict[str, int] = {}
        began, given = time.monotonic(), 0
        rate = load.events_per_s / (2 if mix == "alone" else 1)
        total = int(rate * load.seconds)
        while given < total:
            due = min(int((time.monotonic() - began) * rate), total)
            if due > given:
                yield _stamped(islice(events, due - given), homes)
                given = due
                if stage.turns is None and given >= total * _WARM_UP_SHARE:
                    stage.turns = []
            time.sleep(load.tick_s)
        ended = time.monotonic()
        stage.settle()
        result["backlog_ms"] = round((time.monotonic() - ended) * 1e3, 1)
        result.update(_latencies(stage, load, mix))

    report = Fleet(data_dir, script, []).run()
    result["events"] = report.run_events
    result["cpu_s"] = round(report.cpu_s, 2)
    result["wall_s"] = round(report.wall_s, 2)
    return result


def _stamped(events: Iterator[Event], homes: dict[str, int]) -> Pieces:
    now_ms = time.time_ns() // 1_000_000
    by_home: dict[int, list[Event]] = {}
    for event in events:
        device = event.device_id
        event.event_time_ms = event.ingest_time_ms = now_ms
        if device not in homes:
            homes[device] = partition_of(device, PARTITIONS)
        by_home.setdefault(homes[device], []).append(event)
    return list(by_home.items())


def _latencies(stage: Stage, load: Load, mix: Mix) -> dict[str, Any]:
    hot_home = partition_of(HOT_DEVICE, PARTITIONS)
    everywhere: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []
    hot_events = events = 0
    for turn in stage.turns or ():
        exits = 0
        for event in turn.batch.events:
            events += 1
            if event.device_id == HOT_DEVICE:
                hot_events += 1
            elif event.kind == "page_exit":
                exits += 1
        waited = [(turn.waited_ms, turn.waited_cpu_ms)] * exits
        everywhere += waited
        if turn.batch.partition == hot_home:
            beside += waited
    if mix == "hot" and abs(hot_events / events - 0.5) > 0.05:  # noqa: PLR2004 - what was asked for
        raise RuntimeError(f"the hot device had {hot_events} of {events} events, not half of them")
    if not beside:
        raise RuntimeError(
            f"no device of {load.devices} shares the hot one's partition and left a page: "
            "give more devices or seconds"
        )
    return {
        name: {
            "wall_ms": distribution([each[0] for each in waited]),
            "cpu_ms": distribution([each[1] for each in waited]),
        }
        for name, waited in (("others", everywhere), ("same_partition", beside))
    }
