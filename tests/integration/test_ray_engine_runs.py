"""Pipelines whose models engine actors run: features through kills, and nobody left at the end.

Not in the file of the pool's own tests: here every engine actor of the cluster is a run's.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.scripted_visits import PIPELINE
from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.testing.model_suite import TEXTS
from walle_stream.testing.scripted import Gates, pause, write_script

onnx = pytest.importorskip("onnx")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

TIMEOUT_S = 120.0
SCRIPT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    seen = ctx.tensor([[float(k) / 3, 1.0] for k in range(n)])
    score, small = (ctx.run_model("rank", ctx.tensor([*range(n)]), seen, output=k) for k in (0, 2))
    same = ctx.run_model("same", score)
    y = ctx.run_model("power", ctx.tensor([n]).max(), ctx.tensor([[0.5, 0.25], [0.1, 1.0]]))
    ctx.evaluate(score, small, same, y)
    rows = ctx.run_model("rows", ctx.tensor([*range(n)]), seen)
    ctx.emit({"rows": rows, "sum": rows.sum()})
    ctx.emit({"score": score.tolist(), "small": small.tolist(), "same": same.tolist(), "y": y.tolist()})
    try:
        ctx.run_model("rank", seen).tolist()
    except RuntimeError as error:
        ctx.emit({"error": str(error)})
"""
MODELS = """
  models:
    rank: {onnx: rank.onnx}
    power: {onnx: power.onnx}
    rows: {onnx: rank.onnx, batch: 16}
    same: {file: same.py, function: same}
"""


def visits(device, *times_ms):
    for time_ms in times_ms:
        page = {"device_id": device, "page_id": "shop", "page_instance": str(time_ms)}
        yield {**page, "kind": "page_enter", "event_time_ms": time_ms}
        yield {**page, "kind": "page_exit", "event_time_ms": time_ms + 500}


def steps(*, pauses):
    for part in range(3):
        for device in "abcd":
            yield from visits(device, *(1_000 * n for n in range(1 + 10 * part, 9 + 10 * part)))
        if part == 1 and pauses:
            yield pause("half")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "p.yaml").write_text(PIPELINE.replace("\n  runtime:", f"{MODELS}  runtime:"))
    (folder / "visits.py").write_text(SCRIPT)
    (folder / "same.py").write_text("def same(x):\n    return x\n")
    for name in ("rank", "power"):
        onnx.save(onnx.parser.parse_model(TEXTS[name]), folder / f"{name}.onnx")
    return folder


@pytest.fixture
def start(folder, ray_environ):
    """Start a run that pauses in the middle, and return it when it is there."""
    started = []

    def start(data_dir):
        shutil.rmtree(folder / "steps.jsonl.gates", ignore_errors=True)
        write_script(folder / "steps.jsonl", [*steps(pauses=True)])
        gates = Gates(folder / "steps.jsonl.gates")
        command = [sys.executable, "-m", "walle_stream.cli", "run", str(folder / "p.yaml")]
        command += ["--data-dir", str(data_dir), "--json", "--runtime", "ray", "--hosts", "2"]
        command += ["--set", "spec.engine={actors: 2, cpus: 0.1}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=ray_environ, cwd=folder, **pipes)
        started.append(process)
        assert gates.await_reached("half", TIMEOUT_S), process.communicate()
        return process, gates

    yield start
    for process in started:
        process.kill()
        process.communicate()


def workers(environ, title):
    """Find processes of a cluster by what Ray calls them."""
    token = f"RAY_AUTH_TOKEN={environ['RAY_AUTH_TOKEN']}".encode()
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_one = (each / "cmdline").read_bytes().startswith(f"ray::{title}".encode())
            if is_one and token in (each / "environ").read_bytes():
                yield int(each.name)


def await_no_engine(environ):
    deadline_s = time.monotonic() + TIMEOUT_S
    while left := [*workers(environ, "EngineWorker")]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.02)


def outcome(data_dir):
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


def test_kills_of_actors_and_of_a_host_change_no_byte(start, walle, folder, ray_environ, tmp_path):
    write_script(folder / "steps.jsonl", [*steps(pauses=False)])
    walle("run", folder / "p.yaml", "--data-dir", tmp_path / "local", cwd=folder)
    process, gates = start(tmp_path / "ray")
    actors = [*workers(ray_environ, "EngineWorker")]
    assert len(actors) == 2
    for pid in (*actors, next(workers(ray_environ, "HostProcess"))):
        os.kill(pid, signal.SIGKILL)
    gates.release("half")
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert outcome(tmp_path / "ray") == outcome(tmp_path / "local")
    rows = outcome(tmp_path / "ray")[0].splitlines()
    assert len(rows) == 3 * 3 * 4 * 8
    assert sum(b"1 inputs were given: the model has 'items', 'seen'" in row for row in rows) == 96
    await_no_engine(ray_environ)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends_leaves_no_engine_actor(start, ray_environ, tmp_path, number):
    process, _ = start(tmp_path / "d")
    assert [*workers(ray_environ, "EngineWorker")]
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == (0 if number == signal.SIGINT else -number)
    await_no_engine(ray_environ)
