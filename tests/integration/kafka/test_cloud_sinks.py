"""Sinks of ``walle cloud``: workers die, pause and hand over; each feature is there once."""

import json
import random
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset as ds
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_truth import Truth
from cloud_worker import Worker, wait_until
from topics_of_tests import committed_records

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

DEVICES = [f"d{number}" for number in range(16)]


def in_lake(folder):
    rows = ds.dataset(folder, partitioning="hive").to_table().to_pylist()
    return sorted((row["device_id"], row["sequence_number"], row["feature"]) for row in rows)


def in_topic(cluster, topic):
    return sorted(
        (made.device_id, made.sequence_number, value.decode())
        for made, value in committed_records(cluster.address, topic, 4)
    )


def test_workers_that_come_and_go_hand_each_feature_over_once(cluster, tmp_path):
    chance = random.Random(5)
    topic, merged = cluster.topic("features"), cluster.topic("merged")
    truth = Truth(cluster, topic)
    sinks = [
        "spec.sinks.lake.connector=parquet",
        f"spec.sinks.lake.path={tmp_path / 'lake'}",
        "spec.sinks.lake.every=100ms",
        "spec.sinks.out.connector=kafka",
        f"spec.sinks.out.brokers={cluster.address}",
        f"spec.sinks.out.topic={merged}",
    ]
    shared = ("--snapshots", tmp_path / "snapshots", "--snapshot-every", 1)
    with ExitStack() as stack:

        def worker(name):
            made = Worker(tmp_path, cluster, topic, *shared, overrides=sinks, name=name)
            return stack.enter_context(made)

        workers = [worker("one").wait_ready(), worker("two").wait_ready()]
        for turn in range(6):
            for device in DEVICES:
                truth.send(device, chance.randrange(1, 60))
            cluster.producer.flush()
            gone = workers.pop(0)
            if turn % 3 == 2:
                # it goes on behind its session, with what it had in hand
                gone.process.send_signal(signal.SIGSTOP)
                workers.append(worker(f"new-{turn}").wait_ready())
                truth.wait(workers[-1])
                gone.process.send_signal(signal.SIGCONT)
                assert gone.stop() == 0, gone.output()[-3_000:]
            elif turn % 3 == 1:
                assert gone.stop() == 0, gone.output()[-3_000:]
                workers.append(worker(f"new-{turn}").wait_ready())
            else:
                gone.kill()
                workers.append(worker(f"new-{turn}").wait_ready())
        truth.wait(workers[0])
        for each in workers:
            wait_until(
                lambda each=each: each.get("/healthz")[1]["sinks"] == {"lake": 0, "out": 0},
                "the sinks",
                each,
            )
        for each in workers:
            assert each.stop() == 0
    expected = sorted(
        (device, number, json.dumps({"device": device, "n": number}))
        for device, (_, count) in truth.devices.items()
        for number in range(1, count + 1)
    )
    assert in_lake(tmp_path / "lake") == expected
    assert in_topic(cluster, merged) == expected
