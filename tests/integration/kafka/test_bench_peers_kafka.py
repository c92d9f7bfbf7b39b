"""The Kafka half of the peers' benchmark runs, and everyone in it makes the oracle's features."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[3]


def test_both_drivers_and_the_plain_loop_are_measured(address, driver, tmp_path):
    ours = "walle" if driver == "kafka-python" else "walle-confluent"
    names = [ours, ours.replace("walle", "plain"), "faust"]
    command = [sys.executable, str(ROOT / "bench/peers.py"), "--kafka", "--quick", "--installed"]
    command += ["--trial", "--latency-seconds", "2", "--environments", str(tmp_path / "none")]
    command += ["--json", str(tmp_path / "found.json"), "--contenders", *names]
    environment = {**os.environ, "WALLE_KAFKA": address}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["name"] for each in found["contenders"]] == names[:2]
    assert done.stderr.count("the same as the oracle's") == 2
    assert [each["title"] for each in found["missing"]] == ["Faust"]
    for each in found["contenders"]:
        assert each["events_per_cpu_second"]["median"] > 0
        assert each["latency"]["features"] > 0
        assert each["latency"]["missing"] == 0
