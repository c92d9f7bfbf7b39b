"""Isolation policies and recycling in whole runs: the same features, whatever the VMs do."""

import shutil
import struct
from pathlib import Path

import pytest

from walle_stream.app.programs.packages import find_task
from walle_stream.app.programs.programs import load_program
from walle_stream.app.resources import shipped_configs
from walle_stream.testing.kit import run_pipeline
from walle_stream.vm import pool

TEMPLATE = shipped_configs() / "template"


@pytest.fixture
def folder(tmp_path):
    """A small pipeline with its script and log."""
    shutil.copytree(TEMPLATE, tmp_path / "p")
    return tmp_path / "p"


def with_isolation(folder: Path, isolation: str) -> Path:
    text = (folder / "pipeline.yaml").read_text()
    assert text.count("\n  script: ") == 1
    file = folder / f"{isolation}.yaml"
    file.write_text(text.replace("\n  script: ", f"\n  isolation: {isolation}\n  script: "))
    return file


def test_every_isolation_gives_the_same_features(folder, tmp_path):
    shared = run_pipeline(with_isolation(folder, "shared"), tmp_path / "shared")
    assert shared
    for isolation in ("device", "process"):
        file = with_isolation(folder, isolation)
        assert run_pipeline(file, tmp_path / isolation, ["spec.runtime.deviceVms=1"]) == shared


def test_a_process_whose_vms_are_worn_out_begins_anew(folder, tmp_path, monkeypatch):
    expected = run_pipeline(with_isolation(folder, "shared"), tmp_path / "shared")
    seen: list[int] = []
    # at the first look, and never again
    worn = property(lambda _: not seen and not seen.append(1))
    monkeypatch.setattr(pool.VmPool, "is_worn_out", worn)
    overrides = ["spec.runtime.deviceVms=1", "spec.runtime.batchEvents=1"]
    found = run_pipeline(with_isolation(folder, "device"), tmp_path / "worn", overrides)
    assert found == expected
    assert seen == [1]


def test_the_pools_bounds_come_from_the_pipeline(folder, tmp_path, monkeypatch):
    expected = run_pipeline(with_isolation(folder, "shared"), tmp_path / "shared")
    made = []
    init = pool.VmPool.__init__
    monkeypatch.setattr(
        pool.VmPool,
        "__init__",
        lambda self, *args: (made.append((self, args[1])), init(self, *args))[1],
    )
    overrides = ["vms=2", "deviceVms=3", "warmVms=1", "vmIdle=1s", "vmRuns=2", "batchEvents=1"]
    runtime = [f"spec.runtime.{each}" for each in overrides]
    found = run_pipeline(with_isolation(folder, "device"), tmp_path / "d", runtime)
    assert found == expected
    ((vms, limits),) = made
    assert (limits.vms, limits.device_vms, limits.warm_vms) == (2, 3, 1)
    assert (limits.idle_s, limits.max_runs) == (1.0, 2)
    assert vms.counts.recycled
    assert vms.counts.warmed


def test_destroyed_vms_wear_a_process_out(folder, monkeypatch):
    program = load_program(find_task(with_isolation(folder, "shared")))
    with pool.VmPool({"visit": program}, 1) as vms:
        for most, is_worn_out in ((0, False), (2, False), (1, True)):
            monkeypatch.setattr(pool, "DESTROYED_MAX", most)
            if most == 2:
                vms.install(program)
            assert vms.is_worn_out == is_worn_out


FIRST = """
def run(ctx, page):
    w = ctx.tensor(ctx.resource("w.bin"), shape=(2, 2))
    y = ctx.tensor([[1.0, 2.0]]) @ w
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.emit({"n": n, "y": y.tolist()})
"""
SECOND = """
def run(ctx, page):
    ctx.state.put("m", ctx.state.get("m", 0) + 1)
    ctx.emit({"m": ctx.state.get("m"), "was": ctx.state.get("was")})
def migrate(old):
    return {"m": old["n"] * 100, "was": old.version}
"""


def test_a_task_computes_tensors_and_its_next_version_takes_the_state_over(folder, tmp_path):
    (folder / "w.bin").write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    file = folder / "pipeline.yaml"
    text = file.read_text().replace("\n  script: ", "\n  resources: {w.bin: w.bin}\n  script: ")
    script = folder / "visit.py"
    file.write_text(text)
    script.write_text(FIRST)
    before = run_pipeline(file, tmp_path / "d", limit=5)
    assert [each["feature"] for each in before] == [{"n": 1, "y": [[7, 10]]}] * len(before)
    script.write_text(SECOND)
    file.write_text(text.replace("\n  script: ", "\n  stateVersion: 2\n  script: "))
    after = run_pipeline(file, tmp_path / "d")
    assert after[: len(before)] != after
    assert {"m": 101, "was": 1} in [each["feature"] for each in after]
