"""A run in which a task does nothing says so, and ends with a code of its own."""

import json

import pytest

pytestmark = pytest.mark.integration

FAILS = "def run(ctx, page):\n    raise ValueError('no')\n"
RETURNS = "def run(ctx, page):\n    return {'clicks': 1}\n"


@pytest.fixture
def project(walle, tmp_path):
    walle("init", tmp_path / "p")
    return tmp_path / "p"


@pytest.fixture
def start(walle, project, tmp_path):
    """Run the project once more over the same data directory."""

    def run(*options):
        return walle(
            *("run", project / "pipeline.yaml", "--data-dir", tmp_path / "d", *options), check=False
        )

    return run


def told(done):
    return json.loads(done.stdout.splitlines()[-1])


def test_a_task_that_always_fails_is_named_with_its_line(start, project, walle, tmp_path):
    (project / "visit.py").write_text(FAILS)
    done = start()
    assert done.returncode == 22
    assert "visit.py:2: ValueError: no" in done.stderr.splitlines()[-1]
    assert "first failure of visit: visit.py:2: ValueError: no" in done.stdout
    again = start("--json")
    assert (again.returncode, len(told(again)["problems"])) == (22, 1)
    (task,) = told(again)["tasks"]
    assert (task["task"], task["runs"], task["failures"], task["features"]) == ("visit", 3, 3, 0)
    assert start("--allow-empty").returncode == 0
    shown = walle("status", tmp_path / "d").stdout
    assert "visit.py:2: ValueError: no" in shown
    (task,) = json.loads(walle("status", tmp_path / "d", "--json").stdout)["tasks"]
    assert (task["runs"], task["failures"]) == (3, 3)


def test_a_task_that_never_fires_is_named(start, project):
    yaml = project / "pipeline.yaml"
    yaml.write_text(yaml.read_text().replace("[page_exit]", "[page_exti]"))
    done = start("--json")
    assert done.returncode == 22
    assert told(done)["problems"][0].startswith("task 'visit' never fired")


def test_what_was_not_read_to_its_end_is_not_blamed(start, project, walle, tmp_path):
    yaml = project / "pipeline.yaml"
    yaml.write_text(yaml.read_text().replace("[page_exit]", "[page_exti]"))
    done = start("--json", "--limit", "2")
    assert (done.returncode, told(done)["problems"]) == (0, [])
    (host,) = json.loads(walle("status", tmp_path / "d", "--json").stdout)["hosts"]
    lines = (project / "visits.csv").read_bytes().splitlines(keepends=True)
    assert host["unread_bytes"] == sum(map(len, lines[3:]))
    assert host["unread"] == pytest.approx(host["unread_bytes"] / sum(map(len, lines)))
    assert f"{host['unread_bytes']:,} bytes" in walle("status", tmp_path / "d").stdout


def test_the_same_run_again_is_as_good_as_the_first(start):
    for _ in range(2):
        done = start("--json")
        assert (done.returncode, told(done)["problems"]) == (0, [])


def test_a_script_that_returns_is_told_of_ctx_emit(start, project):
    (project / "visit.py").write_text(RETURNS)
    done = start()
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "task 'visit' returned a value, which is ignored: use ctx.emit" in line
    assert "3 returned a value" in done.stdout


def test_a_trigger_that_no_event_has_is_a_warning_with_its_place(walle, project, start):
    yaml = project / "pipeline.yaml"
    yaml.write_text(yaml.read_text().replace("[page_exit]", "[page_exti]"))
    done = walle("validate", yaml, "--json")
    (line,) = json.loads(done.stdout)["warnings"]
    line_number = yaml.read_text().splitlines().index("    - sequence: [page_exti]") + 1
    assert line.startswith(f"{yaml}:{line_number}:18: task 'visit': ")
    assert line.endswith("did you mean 'page_exit'?")
    assert done.stderr == f"walle: warning: {line}\n"
    assert line in start().stderr


def test_times_and_rows_that_cannot_be_meant_are_warnings(walle, project):
    yaml = project / "pipeline.yaml"
    text = yaml.read_text()
    yaml.write_text(text.replace("time: time_ms", "time: time_ms // 1000"))
    assert "looks like seconds" in walle("validate", yaml).stderr
    yaml.write_text(text.replace("time: time_ms", "time: time_ms * 1000000"))
    assert (
        "9 of the first 9 rows are refused, first visits.csv:2: time"
        in walle("validate", yaml).stderr
    )
    (project / "visits.csv").unlink()
    assert walle("validate", yaml).stderr == ""


@pytest.mark.parametrize("name", ["ipv", "otto", "shop", "intent"])
def test_what_is_shipped_warns_of_nothing(walle, name):
    assert json.loads(walle("validate", name, "--json").stdout)["warnings"] == []


def test_rows_of_which_none_gave_an_event_are_named(start, project, walle, tmp_path):
    rows = project / "visits.csv"
    rows.write_text(rows.read_text().replace(",17", ",99917"))  # beyond all times: all refused
    done = start("--json")
    assert done.returncode == 22
    (problem,) = told(done)["problems"]
    assert problem.startswith("task 'visit' never fired: none of 9 rows")
    assert "9 dead letters: walle dead-letters list" in walle("status", tmp_path / "d").stdout


def test_a_source_without_rows_is_named(start, project):
    rows = project / "visits.csv"
    rows.write_text(rows.read_text().splitlines()[0] + "\n")
    for _ in range(2):
        done = start("--json")
        assert (done.returncode, told(done)["problems"]) == (
            22,
            ["task 'visit' never fired: the source has no rows"],
        )
    assert start("--allow-empty").returncode == 0
