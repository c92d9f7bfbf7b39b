"""The benchmark of spec.state.sync: a small shop through every variant."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_quick_look_has_both_figures_of_the_bars(tmp_path):
    path = tmp_path / "durability.json"
    command = [sys.executable, str(ROOT / "bench/durability.py"), "--rounds", "1"]
    done = subprocess.run(
        [*command, "--devices", "40", "--sessions", "1", "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert len(result["medians"]) == 5
    assert result["cpu_of_true_to_false"] > 0
    assert result["rate_of_slow_true_to_false"] > 0
