"""Memory of very many devices, in memory or at rest, and what waking one costs."""

import gc
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
from vm_parts.measuring import distribution, rollup_bytes, rss_bytes, say

from fleet_parts.events import FILL_EVENTS, Pieces, fill, name_of, touch
from fleet_parts.running import Fleet
from fleet_parts.source import Stage, Turn
from walle_stream.app.queries.query import features_lines

_BULK: Final = 500
_WARM_UP_SHARE: Final = 0.1
_ALL_IN_MEMORY: Final = 10_000_000
_IDLE_TIMEOUT_S: Final = 60.0


class Residents(NamedTuple):
    """How much to measure."""

    seed: int
    devices: int
    singles: int
    """Devices woken one by one."""
    bulk: int
    """Devices woken many at a time."""
    checked: int
    """Devices whose state, page and cursor are looked at in the end."""


def measure_residents(settings: Residents, data_dir: Path, *, is_active: bool) -> dict[str, Any]:
    """Fill a fleet, weigh it, wake some of it.

    Args:
        settings: How much.
        data_dir: Where; a new one.
        is_active: All devices stay in memory; else none does.
    """
    result: dict[str, Any] = {}
    singles, bulk, _ = _chosen(settings)

    def script(stage: Stage) -> Iterator[Pieces]:
        result["before"] = _memory()
        began, began_cpu = time.perf_counter(), time.process_time()
        yield from fill(settings.devices)
        stage.settle()
        result["fill_wall_s"] = round(time.perf_counter() - began, 2)
        result["fill_cpu_s"] = round(time.process_time() - began_cpu, 2)
        _wait_for_the_cloud(fleet)
        result["active_devices"] = fleet.active_devices
        result["after"] = _memory()
        stage.turns = []
        for number in singles:
            home, event = touch(number, settings.devices)
            yield [(home, [event])]
            stage.settle()
        result["single"] = _singles(stage.turns)
        stage.turns = []
        for first in range(0, len(bulk), _BULK):
            by_home: dict[int, list[Any]] = {}
            for number in bulk[first : first + _BULK]:
                home, event = touch(number, settings.devices)
                by_home.setdefault(home, []).append(event)
            yield sorted(by_home.items())
            stage.settle()
        result["bulk"] = _bulk(stage.turns)
        result["after_touches"] = _memory()
        stage.turns = None

    fleet = Fleet(data_dir, script, _overrides(is_active=is_active))
    report = fleet.run()
    result["features"] = report.counters.features
    result["disk_mib"] = round(
        sum(path.stat().st_blocks * 512 for path in data_dir.rglob("*")) / 2**20, 1
    )
    say(
        f"{'active' if is_active else 'at rest'}: {settings.devices:,} devices, "
        f"{result['active_devices']:,} in memory, RSS {result['after']['rss_mib']} MiB"
    )
    return result


def check_residents(settings: Residents, data_dir: Path) -> dict[str, Any]:
    """Open the data directory in this new process and use what it must hold.

    A click fires ``wants`` only where the cursor is still live; the exit's
    feature shows the page's rows and the task's state.
    """
    singles, bulk, checked = _chosen(settings)

    def script(stage: Stage) -> Iterator[Pieces]:
        yield from fill(settings.devices)
        for number in [*singles, *bulk]:
            home, event = touch(number, settings.devices)
            yield [(home, [event])]
        for number in checked:
            home, click = touch(number, settings.devices, "click")
            _, left = touch(number, settings.devices, "page_exit")
            yield [(home, [click, left])]
        stage.settle()

    Fleet(data_dir, script, _overrides(is_active=False)).run()
    wanted = {name_of(number) for number in checked}
    rows = ["page_enter", "page_scroll", "exposure", "click"]
    found: Counter[str] = Counter()
    filled = 0
    for line in features_lines(data_dir):
        made = msgspec.json.decode(line)
        feature = made["feature"]
        filled += made["task"] == "visits" and feature["runs"] == 1
        if made["device_id"] in wanted:
            if made["task"] == "wants" and feature["kinds"] == rows:
                found["cursors"] += 1
            if made["task"] == "visits" and feature["kinds"] == [*rows, "page_exit"]:
                found["pages"] += 1
            if made["task"] == "visits" and feature["runs"] == 2 and feature["last"]:  # noqa: PLR2004 - the second visit
                found["states"] += 1
    kept = {name: found[name] for name in ("cursors", "pages", "states")}
    if filled != settings.devices or set(kept.values()) != {len(checked)}:
        raise RuntimeError(f"of {len(checked)} devices at rest only these came back whole: {kept}")
    say(f"opened again: state, open page and live cursor of {len(checked):,} devices are there")
    return {"checked": len(checked), **kept, "devices_with_features": filled}


def _overrides(*, is_active: bool) -> list[str]:
    return [f"spec.runtime.activeDevices={_ALL_IN_MEMORY if is_active else 0}"]


def _chosen(settings: Residents) -> tuple[list[int], list[int], list[int]]:
    count = settings.singles + settings.bulk + settings.checked
    numbers = Random(settings.seed).sample(range(settings.devices), count)
    after = settings.singles + settings.bulk
    return numbers[: settings.singles], numbers[settings.singles : after], numbers[after:]


def _wait_for_the_cloud(fleet: Fleet) -> None:
    deadline = time.monotonic() + _IDLE_TIMEOUT_S
    while fleet.outbox_bytes:
        if time.monotonic() > deadline:
            raise TimeoutError("the cloud side did not acknowledge everything within a minute")
        time.sleep(0.05)


def _memory() -> dict[str, float]:
    gc.collect()
    parts = {"rss": rss_bytes(), **rollup_bytes()}
    return {f"{name}_mib": round(value / 2**20, 1) for name, value in parts.items()}


def _singles(turns: list[Turn]) -> dict[str, Any]:
    counted = turns[int(len(turns) * _WARM_UP_SHARE) :]
    return {
        "wall_ms": distribution([turn.took_ms for turn in counted], 4),
        "cpu_ms": distribution([turn.took_cpu_ms for turn in counted], 4),
        "take_ms": distribution([turn.take_ms for turn in counted], 4),
    }


def _bulk(turns: list[Turn]) -> dict[str, float]:
    events = sum(len(turn.batch.events) for turn in turns)
    return {
        "events": events,
        "wall_us": round(sum(turn.took_ms for turn in turns) / events * 1e3, 2),
        "cpu_us": round(sum(turn.took_cpu_ms for turn in turns) / events * 1e3, 2),
    }


def fill_events(settings: Residents) -> int:
    """Return how many events the fill has."""
    return settings.devices * FILL_EVENTS
