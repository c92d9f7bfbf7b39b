"""Output of a script that is not well-formed: a dead letter, and old rows that have it are named."""

import json
from pathlib import Path

import pytest

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.programs import isolation
from walle_stream.app.queries.query import features_lines
from walle_stream.cli.__main__ import main
from walle_stream.errors import IsolationError, MalformedRowError
from walle_stream.vm import task_pool
from walle_stream.vm.results import RunResult

pytestmark = pytest.mark.integration

PIPELINE = """
apiVersion: walle/v1
kind: Pipeline
metadata: {name: visits}
spec:
  source: {connector: events, path: events.jsonl}
  runtime: {partitions: 4}
  tasks: [task: visit]
---
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: v1
  script: visit.py
  isolation: ISOLATION
  triggers: [sequence: [page_exit]]
"""
SCRIPT = """
class Twice(dict):
    def items(self): return [("kind", "a"), ("kind", "b"), ("kind", "c")]

def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.emit({"n": n} if page.trigger["good"] else Twice(kind="x"))
"""
FORGED = b'{"n":0}}\n{"device_id":"d1","task":"visit","sequence_number":9,"feature":{"n":9}'


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Six devices with three visits each; the second one of ``d2`` is bad."""
    rows = [
        {
            "device_id": f"d{device}",
            "id": kind,
            "kind": kind,
            "page_id": "home",
            "page_instance": f"home@{visit}",
            "event_time_ms": 10_000 * visit + at,
            "ingest_time_ms": 10_000 * visit + at,
            "contents": {"good": (device, visit) != (2, 2)},
        }
        for visit in (1, 2, 3)
        for device in range(6)
        for at, kind in enumerate(("page_enter", "page_exit"))
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "visit.py").write_text(SCRIPT)
    path = tmp_path / "visits.yaml"
    path.write_text(PIPELINE.replace("ISOLATION", "shared"))
    return path


@pytest.mark.parametrize("policy", ["shared", "process"])
def test_a_malformed_feature_is_a_dead_letter_and_nothing_else(walle, pipeline, policy):
    pipeline.write_text(PIPELINE.replace("ISOLATION", policy))
    data_dir = pipeline.parent / "d"
    done = walle("run", pipeline, "--data-dir", data_dir, "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["task_runs"], report["task_failures"], report["features"]) == (18, 1, 17)
    [letter] = walle("dead-letters", "list", "--data-dir", data_dir, "--json").stdout.splitlines()
    letter = json.loads(letter)
    assert (letter["route"], letter["error"]) == ("task", "MalformedOutput")
    assert (letter["device_id"], letter["task"]) == ("d2", "visit")
    assert "'kind' stands twice" in letter["reason"]
    lines = walle("features", "get", "d2", "--data-dir", data_dir).stdout.splitlines()
    assert [json.loads(line)["feature"] for line in lines] == [{"n": 1}, {"n": 2}]


@pytest.fixture
def old_data_dir(pipeline, monkeypatch):
    """As a version wrote it that believed its guests: what ``d2`` emitted is anything."""
    bad = iter((FORGED, b'{"n":"\xff"}', b'{"n":1,"n":2}'))

    def believe(_program, groups, call):
        for group in (results := call(groups)):
            if group.device_id == "d2":
                group.runs = [RunResult(True, [(next(bad), b"")]) for _ in group.runs]  # noqa: FBT003
                group.state = {"n": b'"\xff"'}
        return results

    data_dir = pipeline.parent / "d"
    with monkeypatch.context() as patch:
        patch.setattr(task_pool, "run_checked", believe)
        LocalRun(Assembly.load(pipeline), RunOptions(data_dir, 1)).run()
    return data_dir


@pytest.mark.parametrize(
    ("command", "count", "what"),
    [
        (["features", "list"], 15, "number 1: a feature"),
        (["state", "export"], 10, "of the key 'n'"),
    ],
    ids=["features", "state"],
)
def test_rows_from_before_are_left_out_and_named(walle, old_data_dir, command, count, what):
    done = walle(*command, "--data-dir", old_data_dir, check=False)
    assert done.returncode == MalformedRowError.exit_code
    [line] = done.stderr.splitlines()
    assert "partition " in line
    assert "device 'd2', task 'visit'" in line
    assert what in line
    assert "more such rows" in line
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert len(rows) >= count
    assert not [row for row in rows if row.get("device_id") == "d2" and "feature" in row]


def test_the_first_row_is_named_in_fields(old_data_dir):
    given = []
    with pytest.raises(MalformedRowError) as caught:
        given.extend(features_lines(old_data_dir))
    error = caught.value
    assert (error.device_id, error.task, error.number, error.count) == ("d2", "visit", 1, 3)
    assert error.partition in range(4)
    assert len(given) == 15
    assert len(list(features_lines(old_data_dir, "d1"))) == 3


def test_other_commands_and_the_next_run_go_on(walle, pipeline, old_data_dir):
    assert walle("status", old_data_dir).returncode == 0
    done = walle("run", pipeline, "--data-dir", old_data_dir)
    assert "device 'd2', task 'visit', number 1: a feature is not well-formed" in done.stderr
    assert "Traceback" not in done.stderr
    assert '"d2"' not in done.stdout


def test_a_measure_that_this_machine_lacks_is_one_line_with_its_place(
    pipeline, monkeypatch, capsys
):
    text = PIPELINE.replace("ISOLATION", "\n    policy: process\n    require: [own_network]")
    pipeline.write_text(text)
    monkeypatch.setattr(isolation, "measures_here", frozenset)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    data_dir = pipeline.parent / "d"
    assert main(["run", str(pipeline), "--data-dir", str(data_dir)]) == IsolationError.exit_code
    [line] = capsys.readouterr().err.splitlines()
    number = text.splitlines().index("    require: [own_network]") + 1
    assert f"{pipeline}:{number}:14: task 'visit': " in line
    assert "lacks own_network" in line
    assert not data_dir.exists()
    assert main(["validate", str(pipeline)]) == 0  # on another machine it may be there
