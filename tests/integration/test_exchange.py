"""Calls of the cloud and models of the host, in whole runs and through ``kill -9``."""

import json
import shutil
import signal
from collections import Counter

import pytest

from walle_stream.app.queries.query import canonical_state
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import FunctionError, SpecFileError
from walle_stream.testing.kit import run_pipeline

TEMPLATE = shipped_configs() / "template"

SCRIPT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    call = ctx.call_cloud("double", {"n": n})
    unknown = "absent"  # by a constant it would be refused before the run
    ctx.call_cloud(unknown, {})
    ctx.emit({"n": n, "call": call})

def on_reply(ctx, reply):
    open_ = ctx.state.get("replies", 0) + 1
    ctx.state.put("replies", open_)
    ctx.emit({"reply": reply.call, "service": reply.service, "value": reply.value,
              "error": reply.error, "at": ctx.clock.now_ms() > 0, "r": ctx.random.random()})
    if reply.service == "double" and reply.value["n"] < 64:
        ctx.call_cloud("double", {"n": reply.value["n"]})
"""

SERVICES = """
import os
def double(call):
    assert call.key.count("/") == 2 and call.task and call.task_version
    return {"n": 2 * call.question["n"]}
def fails(call):
    raise KeyError(call.device_id)
def leaves(call):
    raise SystemExit(3)
def mute(call):
    class Mute(Exception):
        def __str__(self): raise KeyError
    raise Mute
def nan(call):
    return float("nan")
def huge(call):
    return "x" * 2_000_000
def not_json(call):
    return object()
"""


@pytest.fixture
def folder(tmp_path):
    """A small pipeline with a service."""
    folder = tmp_path / "p"
    shutil.copytree(TEMPLATE, folder)
    (folder / "cloud.py").write_text(SERVICES)
    return folder


def pipeline(folder, script, more):
    file = folder / "pipeline.yaml"
    text = file.read_text()
    assert text.count("\n  tasks:") == 1
    file.write_text(text.replace("\n  tasks:", f"\n{more}\n  tasks:"))
    (folder / "visit.py").write_text(script)
    return file


SPEC = "  services: {double: {file: cloud.py, function: double}}"


def features(rows):
    return Counter((row["device_id"], json.dumps(row["feature"])) for row in rows)


def test_a_call_is_answered_once_as_an_event(folder, tmp_path):
    rows = run_pipeline(pipeline(folder, SCRIPT, SPEC), tmp_path / "d")
    found = [row["feature"] for row in rows]
    asked = [each for each in found if "n" in each]
    answered = {
        (row["device_id"], row["feature"]["reply"]): row["feature"]
        for row in rows
        if "reply" in row["feature"]
    }
    assert asked
    for row in rows:
        if "n" in row["feature"]:
            reply = answered[row["device_id"], row["feature"]["call"]]
            assert reply["value"] == {"n": 2 * row["feature"]["n"]}
            assert reply["error"] == ""
            other = answered[row["device_id"], row["feature"]["call"].replace(".1", ".2")]
            assert other["value"] is None
            assert "there is no service 'absent'" in other["error"]
    # each answer below 64 is asked again
    expected = sum(1 + sum(1 for k in range(1, 8) if each["n"] * 2**k < 64) + 1 for each in asked)
    assert len(answered) == expected == len(found) - len(asked)
    # exactly once: a second run has nothing to take
    assert run_pipeline(folder / "pipeline.yaml", tmp_path / "d") == rows


POINTS = (
    "commit.after",
    "reply.after",
    # each takes some ten runs
    *(
        pytest.param(point, marks=pytest.mark.slow)
        for point in ("commit.before", "cloud.before", "cloud.after", "reply.before")
    ),
)


@pytest.mark.parametrize("point", POINTS)
def test_replies_are_neither_lost_nor_doubled_by_kills(walle, folder, tmp_path, point):
    file = pipeline(folder, SCRIPT, SPEC)
    expected = features(run_pipeline(file, tmp_path / "whole"))
    data_dir = tmp_path / "killed"
    kills = 0
    for visit in (1, 2, 5, 0):
        command = ("run", file, "--data-dir", data_dir, "--set", "spec.runtime.batchEvents=2")
        crash = {"WALLE_CRASH": f"{point}:{visit}" if visit else ""}
        done = walle(*command, environ=crash, check=False)
        kills += done.returncode == -signal.SIGKILL
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    assert kills >= 2
    assert features(run_pipeline(file, data_dir)) == expected


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("leaves", "SystemExit: 3"),
        ("mute", "Mute: its text could not be made"),
        ("nan", "ValueError: "),
        ("fails", "KeyError: "),
        ("huge", "ValueError: 2000002 bytes"),
        ("not_json", "TypeError"),
    ],
)
def test_a_service_that_fails_is_told_to_the_script(folder, tmp_path, function, error):
    script = """
def run(ctx, page):
    ctx.call_cloud("s", {})
def on_reply(ctx, reply):
    ctx.emit({"error": reply.error, "value": reply.value})
"""
    more = f"  services: {{s: {{file: cloud.py, function: {function}}}}}"
    rows = run_pipeline(pipeline(folder, script, more), tmp_path / "d")
    assert rows
    assert all(row["feature"]["error"].startswith(error) for row in rows)
    assert all(row["feature"]["value"] is None for row in rows)


def test_a_failed_run_calls_nobody(folder, tmp_path):
    script = """
def run(ctx, page):
    ctx.call_cloud("double", {"n": 1})
    raise ValueError
def on_reply(ctx, reply):
    ctx.emit({})
"""
    assert run_pipeline(pipeline(folder, script, SPEC), tmp_path / "d") == []


def test_a_script_without_on_reply_drops_replies(folder, tmp_path):
    script = """
def run(ctx, page):
    ctx.call_cloud("double", {"n": 1})
"""
    assert run_pipeline(pipeline(folder, script, SPEC), tmp_path / "d") == []


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_models_of_the_host_are_part_of_tensor_expressions(folder, tmp_path, isolation):
    script = """
def run(ctx, page):
    x = ctx.tensor([[1.0, 2.0, 3.0]])
    twice = x * 2
    low, high = (ctx.run_model("split", twice, output=k) for k in (0, 1))
    ctx.evaluate(low, high)
    ctx.emit({"low": low.tolist(), "high": (high + 1).tolist(), "runs": ctx.run_model("runs").item()})
    try:
        ctx.run_model("absent", [1.0]).item()
    except RuntimeError as error:
        ctx.emit({"error": str(error)})
    for model, output in (("fails", 0), ("split", 2)):
        try:
            ctx.run_model(model, x, output=output).item()
        except RuntimeError as error:
            ctx.emit({"error": str(error)})
"""
    (folder / "cloud.py").write_text("""
import numpy as np
count = 0
def split(x):
    global count
    count += 1
    x[0, 0] += 0  # its own copy
    return x[:, :1], x[:, 1:]
def runs():
    return np.int64(count)
def fails(x):
    raise ValueError("no such luck")
""")
    more = "  models:\n" + "\n".join(
        f"    {name}: {{file: cloud.py, function: {name}}}" for name in ("split", "runs", "fails")
    )
    file = pipeline(folder, script, more)
    text = file.read_text()
    file.write_text(text.replace("\n  script: ", f"\n  isolation: {isolation}\n  script: "))
    rows = [row["feature"] for row in run_pipeline(file, tmp_path / "d")]
    firsts = [row for row in rows if "low" in row]
    assert all(row["low"] == [[2.0]] and row["high"] == [[5.0, 7.0]] for row in firsts)
    assert min(row["runs"] for row in firsts) == 1
    errors = {row["error"] for row in rows if "error" in row}
    assert any("there is no model 'absent' (spec.models)" in each for each in errors)
    assert any(
        "model 'fails' of shapes (1, 3): ValueError: no such luck" in each for each in errors
    )
    assert any("model 'split' has 2 outputs, and no output 2" in each for each in errors)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("{file: cloud.py, function: nothing}", "cloud.py has no function 'nothing'"),
        ("{function: 'no_such_package.m:f'}", "no_such_package.m cannot be imported"),
    ],
)
def test_functions_that_are_not_there_are_refused(folder, tmp_path, reference, words):
    file = pipeline(folder, SCRIPT, f"  services: {{double: {reference}}}")
    with pytest.raises(FunctionError, match=r"spec\.services\.double") as caught:
        run_pipeline(file, tmp_path / "d")
    assert words in str(caught.value)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "reference",
    ["{function: f}", "{file: cloud.py, function: 'a:b'}", "{file: absent.py, function: f}"],
)
def test_references_that_cannot_be_right_are_refused_with_their_place(folder, tmp_path, reference):
    file = pipeline(folder, SCRIPT, f"  services: {{double: {reference}}}")
    with pytest.raises(SpecFileError, match=r"pipeline.yaml:\d+:\d+: "):
        run_pipeline(file, tmp_path / "d")


def test_calls_without_a_reply_are_state_and_are_answered_by_the_next_run(folder, tmp_path):
    script = SCRIPT.replace('"absent"', '"slow"')
    (folder / "cloud.py").write_text(
        SERVICES + "import threading\ngate = threading.Event()\ndef slow(call): gate.wait(60)\n"
    )
    file = pipeline(
        folder, script, SPEC.replace("}}", "}, slow: {file: cloud.py, function: slow}}")
    )
    data_dir = tmp_path / "d"
    run_pipeline(file, data_dir, limit=9)  # after a limit replies are not waited for
    lines = [json.loads(line) for line in canonical_state(data_dir)]
    heads = [line["counters"] for line in lines if "counters" in line]
    waiting = [line["waits"] for line in lines if "call" in line]
    assert waiting
    assert len(waiting) == sum(head["calls"] - head["replies"] for head in heads)
    assert {"slow"} <= {service for _, _, service in waiting}
    services = SERVICES + "def slow(call): raise LookupError\n"
    (folder / "again.py").write_text(services)
    file.write_text(file.read_text().replace("cloud.py", "again.py"))
    rows = run_pipeline(file, data_dir)
    lines = [json.loads(line) for line in canonical_state(data_dir)]
    assert not [line for line in lines if "call" in line]
    asked = [row["feature"] for row in rows if "n" in row["feature"]]
    slow = [row["feature"] for row in rows if row["feature"].get("service") == "slow"]
    assert len(slow) == len(asked)
    assert all(each["error"].startswith("LookupError") for each in slow)
