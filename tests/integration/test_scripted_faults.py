"""Scripted faults in a whole pipeline: where it stands at a pause, what an abort leaves."""

import os
import signal
import subprocess
import sys

import pytest

from tests.integration.scripted_visits import PIPELINE
from walle_stream.app.queries.query import canonical_state, features_lines, run_state
from walle_stream.app.queries.replay import dead_letters
from walle_stream.testing.scripted import Gates, abort, broken, pause, write_script

pytestmark = pytest.mark.integration

WAIT_S = 60.0
SCRIPT = """
def run(ctx, page):
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    ctx.emit({"visit": visits, "dwell_ms": page.dwell_ms})
"""


def visit(device, time_ms):
    base = {"device_id": device, "page_id": "shop", "page_instance": str(time_ms)}
    return [
        {**base, "kind": "page_enter", "event_time_ms": time_ms},
        {**base, "kind": "page_exit", "event_time_ms": time_ms + 500},
    ]


def rows():
    for number in range(12):
        yield from visit(f"phone-{number % 3}", 1_000_000 + number * 1_000)
    yield {"late": visit("phone-0", 5)[0]}
    yield broken("{", "phone-1")


@pytest.fixture
def make(tmp_path):
    def make_(name, steps):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "visits.py").write_text(SCRIPT)
        write_script(folder / "steps.jsonl", steps)
        return folder

    return make_


@pytest.fixture
def start():
    """Start a run; what still runs at the end is killed."""
    started = []

    def start_(folder):
        command = [sys.executable, "-m", "walle_stream.cli", "run", folder / "pipeline.yaml"]
        process = subprocess.Popen(
            [*command, "--json", "--data-dir", folder / "data"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ,
        )  # fmt: skip
        started.append(process)
        return process

    yield start_
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    _, said = process.communicate(timeout=WAIT_S)
    return process.returncode, said


def outcome(folder):
    data_dir = folder / "data"
    letters = sorted((each.route, each.raw) for each in dead_letters(data_dir))
    return list(features_lines(data_dir)), list(canonical_state(data_dir)), letters


def test_aborts_lose_nothing(make, start):
    plain = make("plain", rows())
    code, said = ended(start(plain))
    assert code == 0, said
    steps = list(rows())
    steps[3:3], steps[9:9], steps[20:20] = [abort("one")], [abort("two")], [abort("three")]
    killed = make("killed", steps)
    codes = [ended(start(killed))[0] for _ in range(4)]
    assert codes == [-signal.SIGKILL] * 3 + [0]
    features, state, letters = outcome(killed)
    assert (features, state) == outcome(plain)[:2]
    assert len(features) == 12
    assert [route for route, _ in letters] == ["decode", "late"]
    assert letters == outcome(plain)[2]


def test_a_killed_run_stands_at_its_pause_again_and_the_released_one_ends(make, start):
    steps = list(rows())
    steps[8:8] = [pause("half")]
    folder = make("paused", steps)
    gates = Gates(folder / "steps.jsonl.gates")
    first = start(folder)
    assert gates.await_reached("half", WAIT_S)
    first.kill()
    assert ended(first)[0] == -signal.SIGKILL
    assert not run_state(folder / "data").is_complete
    gates.release("half")
    code, said = ended(start(folder))
    assert code == 0, said
    plain = make("plain", rows())
    assert ended(start(plain))[0] == 0
    assert outcome(folder) == outcome(plain)


def test_a_run_at_a_pause_obeys_a_signal(make, start):
    folder = make("stopped", [*visit("phone", 1_000), pause("ever")])
    process = start(folder)
    assert Gates(folder / "steps.jsonl.gates").await_reached("ever", WAIT_S)
    process.terminate()
    code, said = ended(process)
    assert code == 0
    assert "stopped by SIGTERM" in said
    assert len(list(features_lines(folder / "data"))) == 1


def test_a_script_that_is_wrong_ends_the_run_with_its_place(make, walle):
    folder = make("wrong", [{"halt": True}])
    done = walle("run", folder / "pipeline.yaml", "--data-dir", folder / "data", check=False)
    assert done.returncode == 4
    assert f"{folder / 'steps.jsonl'}:1:2: 'halt' is neither a command" in done.stderr
