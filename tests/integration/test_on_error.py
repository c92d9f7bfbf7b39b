"""What a task says of failed runs, in whole pipelines; records of dead letters in a file."""

import json

import pytest

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import canonical_state, features_lines, run_state
from walle_stream.app.queries.replay import dead_letters
from walle_stream.errors import SpecFileError
from walle_stream.testing.scripted import broken, write_script

pytestmark = [pytest.mark.integration, pytest.mark.vm]

PIPELINE = """
apiVersion: walle/v1
kind: Pipeline
metadata: {name: visits}
spec:
  source: {connector: "walle_stream.testing.scripted:CONNECTOR", script: steps.jsonl}
  tasks: [{task: visits}]
  runtime: {partitions: 2, batchEvents: 8}
  models:
    flaky: {file: models.py, function: flaky}
---
apiVersion: walle/v1
kind: Task
metadata: {name: visits}
spec:
  script: visits.py
  triggers: [{sequence: [page_exit]}]
"""
SCRIPT = """
def run(ctx, page):
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    if page.instance.endswith("!"):
        raise KeyError(page.instance)
    if page.instance.endswith("?"):
        ctx.run_model("flaky", ctx.tensor([float(page.instance[:-1])])).item()
    ctx.emit({"visit": visits, "page": page.instance})
"""
MODELS = """
asked = {}

def flaky(x):
    asked[x.item()] = asked.get(x.item(), 0) + 1
    if asked[x.item()] < 3:
        raise OSError("try again")
    return x
"""


def visit(number):
    mark = "!" if number % 10 == 3 else "?" if number % 10 == 7 else ""
    base = {
        "device_id": f"phone-{number % 3}",
        "page_id": "shop",
        "page_instance": f"{number}{mark}",
    }
    for kind, after in (("page_enter", 0), ("page_exit", 500)):
        yield {**base, "kind": kind, "event_time_ms": 1_000_000 + number * 1_000 + after}


@pytest.fixture
def make(tmp_path):
    def make_(name, on_error="", models=MODELS):
        folder = tmp_path / name
        folder.mkdir()
        line = f"  onError: {on_error}\n" if on_error else ""
        (folder / "pipeline.yaml").write_text(PIPELINE + line)
        (folder / "visits.py").write_text(SCRIPT)
        (folder / "models.py").write_text(models)
        steps = [event for number in range(30) for event in visit(number)]
        write_script(folder / "steps.jsonl", [*steps, broken("{ a line", "phone-1")])
        return folder

    return make_


def run(folder):
    """Run in this process: it starts at once."""
    LocalRun(Assembly.load(folder / "pipeline.yaml"), RunOptions(folder / "d", 1)).run()


def die(walle, folder, crash):
    command = ("run", folder / "pipeline.yaml", "--data-dir", folder / "d")
    done = walle(*command, environ={"WALLE_CRASH": crash}, check=False)
    assert done.returncode in {0, -9}, done.stderr
    return done.returncode == -9


def failed(folder):
    return [each for each in dead_letters(folder / "d") if each.route == "task"]


def test_runs_that_are_tried_again_give_what_never_failing_ones_give(make):
    sound = make("sound", models="def flaky(x):\n    return x\n")
    run(sound)
    tried = make("tried", "{retry: {attempts: 3, backoff: 1ms}}")
    run(tried)
    assert [*features_lines(tried / "d")] == [*features_lines(sound / "d")]
    assert [each.attempts for each in failed(sound)] == [1] * 3
    assert [each.attempts for each in failed(tried)] == [3] * 3
    assert {each.error for each in failed(tried)} == {"KeyError"}


def test_without_a_retry_each_failure_is_a_letter(make):
    folder = make("once")
    run(folder)
    assert len(failed(folder)) == 6
    assert run_state(folder / "d").counters.task_failures == 6


def test_a_task_may_leave_no_letters(make):
    folder = make("none", "{deadLetter: false}")
    run(folder)
    assert failed(folder) == []
    counters = run_state(folder / "d").counters
    assert (counters.task_failures, counters.dead_letters) == (6, 1)


def test_deaths_among_the_attempts_change_nothing(walle, make):
    # the model answers as the process lives, so it is left out: what fails, fails always
    models = "def flaky(x):\n    return x\n"
    whole = make("whole", "{retry: {attempts: 3, backoff: 1ms}}", models)
    run(whole)
    folder = make("killed", "{retry: {attempts: 3, backoff: 1ms}}", models)
    points = ("vm.before:2", "vm.after:2", "commit.before:3", "commit.after:1", "vm.after:1")
    assert sum(die(walle, folder, point) for point in points) >= 3
    run(folder)
    assert [*canonical_state(folder / "d")] == [*canonical_state(whole / "d")]


def test_attempts_stand_in_the_list(make, walle):
    folder = make("listed", "{retry: {attempts: 2, backoff: 1ms}}")
    run(folder)
    listed = walle("dead-letters", "list", "--data-dir", folder / "d", "--task", "visits").stdout
    assert listed.count("task 'visits' after 2 attempts: visits.py:") == len(failed(folder))
    text = walle(
        "dead-letters", "list", "--data-dir", folder / "d", "--json", "--device", "phone-1"
    ).stdout
    letters = [json.loads(line) for line in text.splitlines()]
    assert {each["device_id"] for each in letters} == {"phone-1"}
    assert not any("record" in each for each in letters)


def test_records_and_pages_go_into_a_file_that_is_a_source(make, walle, tmp_path):
    folder, out = make("back", models="def flaky(x):\n    return x\n"), tmp_path / "out.jsonl"
    run(folder)
    replay = ["dead-letters", "replay", "--data-dir", folder / "d", "--json"]
    assert json.loads(walle(*replay, "--dry-run").stdout)["replayed"] == 1
    done = walle(*replay, "--to", out)
    assert json.loads(done.stdout)["replayed"] == 4
    lines = out.read_bytes().splitlines()
    assert lines.count(b"{ a line") == 1
    events = [json.loads(line) for line in lines if line != b"{ a line"]
    assert {each["page_instance"] for each in events} == {"3!", "13!", "23!"}
    # what is there already is kept, and nothing is replayed twice
    assert walle(*replay, "--to", out, check=False).returncode == 4
    again = json.loads(walle(*replay, "--to", tmp_path / "second").stdout)
    assert (again["replayed"], sum(again["skipped"].values())) == (0, 4)
    assert not (tmp_path / "second").exists()
    assert (
        json.loads(walle(*replay, "--to", tmp_path / "second", "--again").stdout)["replayed"] == 4
    )
    # the corrected script over the failed pages
    text = (folder / "pipeline.yaml").read_text()
    text = text.replace(
        '"walle_stream.testing.scripted:CONNECTOR", script: steps.jsonl', f"events, path: {out}"
    )
    (folder / "corrected.yaml").write_text(text)
    (folder / "visits.py").write_text(SCRIPT.replace("raise KeyError(page.instance)", "pass"))
    corrected = Assembly.load(folder / "corrected.yaml")
    LocalRun(corrected, RunOptions(tmp_path / "corrected", 1)).run()
    found = [json.loads(line)["feature"]["page"] for line in features_lines(tmp_path / "corrected")]
    assert sorted(found) == ["13!", "23!", "3!"]


@pytest.mark.parametrize(
    ("on_error", "words"),
    [
        ("{retry: {attempts: 0}}", "spec.onError.retry.attempts: expected at least 1, found 0"),
        ("{retry: {attempts: 11}}", "expected at most 10, found 11"),
        ("{retry: {backoff: 1m}}", "expected at most 2s, found '1m'"),
        ("{retry: 3}", "spec.onError.retry: expected a mapping, found 3"),
        ("{deadletter: false}", "unknown key 'deadletter', did you mean 'deadLetter'?"),
        ("{deadLetter: maybe}", "expected true or false, found 'maybe'"),
    ],
)
def test_a_wrong_on_error_is_told_with_its_place(make, on_error, words):
    with pytest.raises(SpecFileError) as caught:
        Assembly.load(make("wrong", on_error) / "pipeline.yaml")
    assert "pipeline.yaml:18:" in str(caught.value)
    assert words in str(caught.value)


def test_a_wrong_sink_is_told_with_its_place(make):
    file = make("wrong") / "pipeline.yaml"
    for value, words in [
        ("{connector: files}", "takes no dead letters"),
        ("{connector: kafak}", "there is no connector 'kafak', did you mean 'kafka'?"),
        ("{connector: kafka, topic: t}", "missing key 'brokers'"),
        (
            "{connector: kafka, brokers: 'a:1', topic: t, maxBytes: 2MiB}",
            "expected at most 1048576 bytes",
        ),
        ("{topic: t}", "missing key 'connector'"),
    ]:
        with pytest.raises(SpecFileError) as caught:
            Assembly.load(file, [f"spec.deadLetters={value}"])
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
