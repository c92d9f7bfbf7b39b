"""The bench of the gates: a quick one from end to end, and that it counts and folds as the product."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.deploy.release.groups import group
from walle_deploy.model.health import LEVELS, GroupWindow, ReleaseHealth
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory, look

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    from gates_parts import deciding, fleet, tables  # noqa: PLC0415 - bench is no package of ours

    yield deciding, fleet, tables
    for name in [each for each in sys.modules if each.split(".")[0] in {"gates_parts", "vm_parts"}]:
        del sys.modules[name]


@pytest.mark.parametrize("kind", ["alike", "spread", "slow", "broken", "busy"])
def test_what_is_counted_can_be(parts, kind):
    _, fleet, _ = parts
    setting = fleet.Setting(300, 5e-3, 20, daily=True, failing=0.05, kind=kind)
    found = fleet.simulate(setting, np.random.default_rng(1))
    for at_risk, reached in (found[:2], found[2:4]):
        assert np.all(reached <= at_risk)
        assert np.all(at_risk <= 300)
        assert np.all(reached.sum(axis=0)[1:] <= reached.sum(axis=0)[:-1])
    assert np.all(found.new_failing <= found.new_devices)
    assert 270 <= found.installed[-1] < 300


def test_all_windows_at_once_are_what_the_gates_fold(parts):
    deciding, fleet, _ = parts
    setting = fleet.Setting(2_000, 5e-3, 10, daily=False, failing=0.02)
    counted = fleet.simulate(setting, np.random.default_rng(2))
    zeros = (0,) * len(LEVELS)
    groups = [
        group(
            version,
            [
                GroupWindow(number, tuple(row), tuple(bad), zeros, zeros)
                for number, (row, bad) in enumerate(
                    zip(at_risk.tolist(), reached.tolist(), strict=True)
                )
            ],
        )
        for version, at_risk, reached in (("v2", *counted[:2]), ("v1", *counted[2:4]))
    ]
    health = ReleaseHealth(new=groups[0], control=groups[1])
    seen = look(Memory(), Gates(), health, 1, control_percent=1.0)
    assert np.array(seen.failures.logs) == pytest.approx(deciding.folded(counted)[-1], abs=1e-6)


def test_a_quick_one_has_bars_tables_and_a_picture(parts, tmp_path):
    path = tmp_path / "gates.json"
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "bench/gates.py"),
            "--runs",
            "2",
            "--only",
            "10 min, flat",
            "--json",
            str(path),
            "--kept",
            str(tmp_path / "kept.jsonl"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert [each["stopped"] for each in found["settings"] if each["failing"] == 0.02] == [2, 2]
    assert "stopped before 10 % have it" in done.stdout
    drawn = parts[2].figure(found)
    assert drawn.startswith("<svg")
    assert drawn.count("<rect") == 1 + sum(not each["failing"] for each in found["settings"])
