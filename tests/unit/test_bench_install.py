"""The benchmark of installations: a small shop from end to end."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_event_counts_while_versions_come(tmp_path):
    path = tmp_path / "install.json"
    command = [sys.executable, str(ROOT / "bench/install.py"), "--quick", "--devices", "40"]
    done = subprocess.run(
        [*command, "--seconds", "4", "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [found] = json.loads(path.read_text())["rounds"]
    assert not found["is_any_feature_other"]
    assert found["events_not_handled"] == 0
    assert found["installing"]["features"] == found["alone"]["features"] > 0
    assert found["installing"]["install_ms"]["one"]
    assert found["restart_ms"]
