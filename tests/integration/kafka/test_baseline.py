"""The cloud-only baseline over a real broker: the same features as the naive truth."""

import importlib.util
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.events import Event

sys.path.insert(0, str(Path(__file__).parent))
from cloud_worker import ROOT, Cluster, Worker, wait_until

_spec = importlib.util.spec_from_file_location(
    "naive_shop", Path(__file__).parents[1] / "naive_shop.py"
)
naive_shop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive_shop)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("faust") is None, reason="the extra `cloud` is not installed"),
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

BASELINE = (str(ROOT / "bench/cloud_baseline.py"),)
SHOP = SimulatorModel(
    devices=12, sessions=2, late_events=0.0, lost_order_events=0.0, missing_exits=0.0
)


@pytest.fixture(scope="module")
def cluster(address):
    made = Cluster(address)
    yield made
    made.close()


def test_raw_events_become_the_features_of_the_naive_truth(cluster, tmp_path):
    raw, features = cluster.topic("raw"), cluster.topic("features")
    timeline = Timeline(SHOP)
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    truth = naive_shop.recompute(lines, 1)
    for line in lines:
        event = msgspec.json.decode(line, type=Event)
        cluster.producer.send(
            raw, key=event.device_id.encode(), value=line, timestamp_ms=event.ingest_time_ms
        )
    cluster.producer.flush()
    overrides = [f"spec.source.topic={raw}"]
    with (
        Worker(
            tmp_path, cluster, features, overrides=overrides, name="b", program=BASELINE
        ) as baseline,
        Worker(tmp_path, cluster, features, "--keep", "1000", name="c") as cloud,
    ):
        baseline.wait_ready()
        cloud.wait_ready()
        for device, expected in truth.items():
            row = wait_until(
                lambda device=device, expected=expected: all_of_it(cloud, device, expected),
                f"{device}, {len(expected)} features",
                baseline,
            )
            found = [each["feature"] for each in reversed(row["tasks"]["shop-ipv"])]
            assert found == expected
            assert row["gaps"] == 0
        assert baseline.stop() == 0
        assert cloud.stop() == 0


def all_of_it(cloud, device, expected):
    row = cloud.row(device)
    return row if row and row["incarnations"][0]["features"] >= len(expected) else None


def test_topics_of_different_partition_counts_are_refused(cluster, tmp_path):
    raw, features = cluster.topic("raw2", 2), cluster.topic("features2", 3)
    overrides = [f"spec.source.topic={raw}"]
    with Worker(tmp_path, cluster, features, overrides=overrides, program=BASELINE) as worker:
        assert worker.process.wait(60) == 13
        assert "has 2 partitions" in worker.output()
