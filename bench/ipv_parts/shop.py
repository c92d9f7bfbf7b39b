"""The shop's events as they happen, and the features that they should become."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline

type Key = tuple[str, str]
"""Device and page instance: a view."""

_TRUTH: Final = Path(__file__).resolve().parents[2] / "tests/integration/naive_shop.py"


def shop_lines(devices: int, seed: int, count: int) -> list[bytes]:
    """Make the first events of a shop, each once and in order: as they happen at the devices.

    Returns:
        Lines of JSON, some 1.1 KB each.
    """
    model = SimulatorModel(
        devices=devices,
        # more than are taken
        sessions=max(2, count // (devices * 20)),
        seed=seed,
        missing_exits=0.0,
        late_events=0.0,
        lost_order_events=0.0,
        duplicates=0.0,
    )
    timeline = Timeline(model)
    made = islice(_lines(timeline), count)
    lines = list(made)
    if len(lines) < count:
        raise ValueError(f"the shop has {len(lines)} events, not {count}: give it more devices")
    return lines


def true_features(lines: list[bytes]) -> dict[Key, dict[str, Any]]:
    """Return what a naive program makes of views that ended with an exit.

    Args:
        lines: In the order in which they happened.
    """
    features = _recompute()(lines, 1)
    return {
        (device, each["page_instance"]): each
        for device, made in features.items()
        for each in made
        if each["cause"] == "exit"
    }


def _lines(timeline: Timeline) -> Iterator[bytes]:
    for window in range(timeline.windows):
        for line in timeline.lines(window):
            yield line.data.rstrip(b"\n")


def _recompute() -> Callable[[list[bytes], int], dict[str, list[dict[str, Any]]]]:
    spec = importlib.util.spec_from_file_location("naive_shop", _TRUTH)
    if spec is None or spec.loader is None:
        sys.exit(f"{_TRUTH.name} is missing: run from a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[list[bytes], int], dict[str, list[dict[str, Any]]]] = module.recompute
    return found
