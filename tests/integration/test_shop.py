"""The simulated shop from end to end."""

import gzip
import importlib.util
from pathlib import Path

import pytest

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.resources import shipped_configs
from walle_stream.testing.kit import run_pipeline

_spec = importlib.util.spec_from_file_location(
    "naive_shop", Path(__file__).with_name("naive_shop.py")
)
naive_shop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive_shop)

KEYS = {"devices": 60, "sessions": 3, "late_events": 0.05, "missing_exits": 0.1}


@pytest.fixture(scope="module")
def expected():
    timeline = Timeline(SimulatorModel(**KEYS))
    lines = [line for window in range(timeline.windows) for line in timeline.lines(window)]
    return naive_shop.recompute([line.data for line in lines], 16)


@pytest.mark.parametrize("batch_events", [2_000, 7])
def test_the_shops_features_are_those_of_plain_python(expected, tmp_path, batch_events):
    overrides = ["source.devices=60", "source.sessions=3", "source.lateEvents=0.05"]
    overrides += ["source.missingExits=0.1", f"runtime.batchEvents={batch_events}"]
    found: dict[str, list[object]] = {}
    for row in run_pipeline(
        shipped_configs() / "shop.yaml", tmp_path / "d", [f"spec.{each}" for each in overrides]
    ):
        found.setdefault(row["device_id"], []).append(row["feature"])
        assert row["sequence_number"] == len(found[row["device_id"]])
    assert found == expected
    assert sum(map(len, expected.values())) > 500
    assert {each["cause"] for views in expected.values() for each in views} == {"exit", "timeout"}


def test_a_shop_that_was_stopped_goes_on(expected, tmp_path):
    file = shipped_configs() / "shop.yaml"
    overrides = ["source.devices=60", "source.sessions=3", "source.lateEvents=0.05"]
    overrides = [f"spec.{each}" for each in [*overrides, "source.missingExits=0.1"]]
    for limit in (1, 1_000, 5_000):
        run_pipeline(file, tmp_path / "d", overrides, limit)
    rows = run_pipeline(file, tmp_path / "d", overrides)
    assert len(rows) == sum(map(len, expected.values()))
    assert {row["device_id"] for row in rows} == set(expected)


@pytest.mark.parametrize("name", ["shop.jsonl", "shop.jsonl.gz"])
def test_a_file_of_the_shops_events_gives_the_same(expected, tmp_path, name):
    timeline = Timeline(SimulatorModel(**KEYS))
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    data = b"\n".join(lines) + b"\n"
    file = tmp_path / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    override = [f"spec.source={{connector: 'walle_connectors.events:CONNECTOR', path: {file}}}"]
    shop = shipped_configs() / "shop.yaml"
    run_pipeline(shop, tmp_path / "d", override, 3_000)
    found: dict[str, list[object]] = {}
    for row in run_pipeline(shop, tmp_path / "d", override):
        found.setdefault(row["device_id"], []).append(row["feature"])
    assert found == expected
