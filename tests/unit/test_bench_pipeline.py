"""The benchmark of the pipeline: a small shop from end to end, with the cost of each stage."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_quick_look_has_a_figure_for_every_stage(tmp_path):
    path = tmp_path / "pipeline.json"
    command = [sys.executable, str(ROOT / "bench/pipeline.py"), "--jobs", "shop", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--devices", "40", "--sessions", "2", "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shop = json.loads(path.read_text())["shop"]
    for job in (shop, shop["packed"]):
        assert job["features"] > 0
        assert job["walle_events_per_cpu_second"] > 0
        stages = job["stages_us_per_event"]
        # each was found under the name that the code has for it today, and ran
        for name in ("read and decode", "VM: host's side", "write batch", "cloud merge"):
            assert stages[name] > 0
