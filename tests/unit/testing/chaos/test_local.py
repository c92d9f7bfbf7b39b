"""``walle run`` as a target, without running it: stand-ins for its processes."""

import subprocess
import sys
import time

import pytest
import yaml

from walle_stream.app.resources import shipped_configs
from walle_stream.errors import CampaignError
from walle_stream.faults import CRASH_POINTS
from walle_stream.testing.chaos import ChaosPlan, PartPlan
from walle_stream.testing.chaos.local import MARK, IsolatedTarget, LocalRunning, LocalTarget
from walle_stream.testing.chaos.processes import with_environment

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print("up", flush=True)
code = sys.stdin.readline()
child.kill()
child.wait()
print("what it said", file=sys.stderr)
raise SystemExit(int(code))
"""


def make_plan(pipeline="ipv"):
    return ChaosPlan(pipeline=str(pipeline), parts=(PartPlan("local", 1),))


@pytest.fixture
def run(tmp_path):
    (tmp_path / "phase").write_bytes(b"\0")
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )
    assert process.stdout.readline() == b"up\n"
    running = LocalRunning(process, tmp_path / "phase", tmp_path / "said", is_armed=False)
    running.end_with = lambda code: (process.stdin.write(b"%d\n" % code), process.stdin.flush())
    yield running
    running.close()
    running.close()
    process.stdin.close()
    process.stdout.close()


def test_a_run_ends_done_killed_or_failed(run):
    assert run.await_end(0.0) is None
    run.end_with(0)
    assert run.await_end(30.0).kind == "done"
    assert not run.kill("run", 0)


def test_a_killed_run_is_killed_and_only_once(run):
    assert run.kill("run", 0)
    assert run.await_end(30.0).kind == "killed"
    assert not run.kill("run", 0)


def test_a_run_that_fails_says_what_it_said(run):
    run.end_with(5)
    end = run.await_end(30.0)
    assert (end.kind, end.text) == ("failed", "exit status 5: what it said")


def test_a_run_may_give_up_when_its_vm_was_killed(run):
    assert run.kill("vm", 3)
    deadline = time.monotonic() + 30.0
    while run.kill("vm", 3):  # dying takes a moment on a busy machine
        assert time.monotonic() < deadline
    run.end_with(5)
    assert run.await_end(30.0).kind == "gave up"


def test_other_errors_are_failures_whatever_was_killed(run):
    assert run.kill("vm", 0)
    run.end_with(6)
    assert run.await_end(30.0).kind == "failed"


def test_life_is_the_first_crash_point_or_the_end(run, tmp_path):
    assert run.phase() == ""
    (tmp_path / "phase").write_bytes(b"\2")
    run.await_life(30.0)
    assert run.phase() == CRASH_POINTS[1]
    (tmp_path / "phase").write_bytes(b"\0")
    run.end_with(0)
    run.await_life(30.0)


def test_points_that_a_pipeline_does_not_pass_are_not_drawn(tmp_path):
    points = LocalTarget(make_plan(), tmp_path).roles[0].points
    assert set(CRASH_POINTS) - set(points) == {"reply.before", "reply.after", "sink.after"}
    file = tmp_path / "calls.yaml"
    file.write_text("kind: Pipeline\nspec: {services: {}, sinks: {}}\n")
    assert LocalTarget(make_plan(file), tmp_path).roles[0].points == CRASH_POINTS


def test_every_task_of_the_isolated_definition_is_in_processes(tmp_path):
    IsolatedTarget(make_plan(), tmp_path)
    IsolatedTarget(make_plan(), tmp_path)  # resumed
    found = list(yaml.safe_load_all((tmp_path / "isolated" / "ipv.yaml").read_text()))
    before = list(yaml.safe_load_all((shipped_configs() / "ipv.yaml").read_text()))
    before[1]["spec"]["isolation"] = "process"
    assert found == before
    assert (tmp_path / "isolated" / "ipv.py").samefile(shipped_configs() / "ipv.py")


@pytest.mark.parametrize(
    ("text", "error"), [("kind: Pipeline\n", "no document of kind Task"), ("{", "cannot be read")]
)
def test_a_definition_that_cannot_be_isolated_is_named(tmp_path, text, error):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(CampaignError, match=error):
        IsolatedTarget(make_plan(file), tmp_path)


def test_what_an_earlier_campaign_left_is_killed_and_no_other(tmp_path):
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    started = []
    for folder in (tmp_path, tmp_path / "other"):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={MARK: str(folder)},
            )
        )  # fmt: skip
        assert started[-1].stdout.readline() == b"up\n"
    LocalTarget(make_plan(), tmp_path).clear()
    assert started[0].wait(30) == -9
    assert [each.pid for each in with_environment(MARK, str(tmp_path / "other"))] == [
        started[1].pid
    ]
    for each in started:
        each.kill()
        each.communicate()
