"""A script that ends its process without an exception: one death, then everyone else goes on."""

import collections
import signal

import msgspec
import pytest

from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.app.queries.replay import dead_letters
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import VmStartError
from walle_stream.testing.kit import run_pipeline

pytestmark = pytest.mark.integration

DEVICES, PAGES, BOMB_AT = 6, 12, 3
SCRIPT = """
def run(ctx, page):
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    if page.filter(kind="click")[0].contents["widget"] == "bomb":
        chain = iter([1])
        for _ in range(300_000):
            chain = map(int, chain)
        next(chain, None)
    ctx.emit({"visit": visits, "dwell_ms": page.dwell_ms})
"""
RUNTIME = ["spec.runtime.partitions=2", "spec.runtime.batchEvents=16", "spec.runtime.hosts=1"]


def write_log(file, *, bombs, bombers=(2,)):
    # one page of every device at a time; bombers bring bombs from their fourth page on
    lines, now = ["device,time_ms,page,action,item"], 1_700_000_000_000
    for page in range(PAGES):
        for device in range(DEVICES):
            if device in bombers and not bombs:
                continue
            item = "bomb" if device in bombers and page >= BOMB_AT else "buy"
            for action in ("enter", "click", "exit"):
                now += 1_000
                lines.append(f"phone-{device},{now},product,{action},{item}")
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture(params=["shared", "device"])
def pipelines(request, tmp_path):
    """The same pipeline twice, over a log with bombs and over one without."""
    text = (shipped_configs() / "template" / "pipeline.yaml").read_text()
    text = text.replace("\n  script: ", f"\n  isolation: {request.param}\n  script: ")
    files = []
    for name in ("bombs", "innocent"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "visit.py").write_text(SCRIPT)
        (tmp_path / name / "pipeline.yaml").write_text(text)
        write_log(tmp_path / name / "visits.csv", bombs=name == "bombs")
        files.append(tmp_path / name / "pipeline.yaml")
    return files


def sets():
    return [part for override in RUNTIME for part in ("--set", override)]


def features(data_dir):
    by_device = collections.defaultdict(list)
    for line in features_lines(data_dir):
        row = msgspec.json.decode(line)
        by_device[row["device_id"]].append((row["sequence_number"], row["feature"]))
    return by_device


def check_offender(found, letters):
    # what lay in one batch with its first bomb is refused with it, wherever batches were cut
    assert [feature["visit"] for _, feature in found] == list(range(1, len(found) + 1))
    assert BOMB_AT - 2 <= len(found) <= BOMB_AT
    assert len(found) + letters == PAGES


def test_a_crash_in_c_ends_its_process_once_and_costs_its_device_alone(walle, pipelines, tmp_path):
    bombs, innocent = pipelines
    data_dir = tmp_path / "data"
    command = ["run", bombs, "--data-dir", data_dir, *sets()]
    first = walle(*command, check=False)
    assert first.returncode in {-signal.SIGSEGV, -signal.SIGBUS}, first.stderr
    again = walle(*command)
    assert "ended while partition" in again.stderr
    assert "ended its process" in again.stderr

    run_pipeline(innocent, tmp_path / "reference", RUNTIME)
    expected, found = features(tmp_path / "reference"), features(data_dir)
    offender = found.pop("phone-2")
    assert found == expected
    assert len(expected) == DEVICES - 1
    letters = [letter for letter in dead_letters(data_dir) if letter.device_id == "phone-2"]
    check_offender(offender, len(letters))
    assert {letter.error for letter in letters} == {"Quarantined"}
    assert len(list(dead_letters(data_dir))) == len(letters)
    # out for good: a third process has nothing to fear, and nothing in doubt
    assert (data_dir / "quarantine.jsonl").read_text() == '["visit","phone-2"]\n'
    assert set((data_dir / "in-hand").read_bytes()) == {0}
    assert "ended while" not in walle(*command).stderr
    assert features(data_dir) == {**expected, "phone-2": offender}


def test_devices_that_crash_cost_one_end_each_at_most(walle, pipelines, tmp_path):
    bombers = (1, 2, 4)
    for file in pipelines:
        bombs = file.parent.name == "bombs"
        write_log(file.with_name("visits.csv"), bombs=bombs, bombers=bombers)
    command = ["run", pipelines[0], "--data-dir", tmp_path / "data", *sets(), "--hosts", "2"]
    ends = [walle(*command, check=False).returncode]
    while ends[-1] and len(ends) <= len(bombers):
        ends.append(walle(*command, check=False).returncode)
    assert ends[-1] == 0
    assert set(ends[:-1]) <= {-signal.SIGSEGV, -signal.SIGBUS}
    run_pipeline(pipelines[1], tmp_path / "reference", RUNTIME)
    found = features(tmp_path / "data")
    letters = collections.Counter(each.device_id for each in dead_letters(tmp_path / "data"))
    for device_id in (f"phone-{number}" for number in bombers):
        check_offender(found.pop(device_id), letters.pop(device_id))
    assert found == features(tmp_path / "reference")
    assert not letters


@pytest.mark.parametrize(
    "point",
    [
        "vm.after:3",
        *(
            pytest.param(point, marks=pytest.mark.slow)
            for point in ("vm.before:1", "commit.after:3", "send.before:2")
        ),
    ],
)
def test_a_kill_that_no_script_caused_changes_nothing(walle, pipelines, tmp_path, point):
    _, innocent = pipelines
    data_dir = tmp_path / "data"
    command = ["run", innocent, "--data-dir", data_dir, *sets()]
    killed = walle(*command, check=False, environ={"WALLE_CRASH": point})
    assert killed.returncode == -signal.SIGKILL
    # the third commit may be of a batch without pages: the file says whether scripts had run
    had_run = any((data_dir / "in-hand").read_bytes())
    if point != "commit.after:3":
        assert had_run == (point == "vm.after:3")
    again = walle(*command)
    assert ("ended while partition" in again.stderr) == had_run
    run_pipeline(innocent, tmp_path / "reference", RUNTIME)
    assert features(data_dir) == features(tmp_path / "reference")
    states = [list(canonical_state(each)) for each in (data_dir, tmp_path / "reference")]
    assert states[0] == states[1]
    assert not list(dead_letters(data_dir))
    assert not (data_dir / "quarantine.jsonl").exists()
    assert set((data_dir / "in-hand").read_bytes()) == {0}


def test_a_body_that_ends_its_process_is_named_by_the_next_one(walle, pipelines, tmp_path):
    file = pipelines[1]
    bomb = SCRIPT.partition("chain = iter")[2].partition("    ctx.emit")[0]
    lines = ("chain = iter" + bomb).splitlines()
    body = "\n".join(line.removeprefix("        ") for line in lines)
    file.with_name("visit.py").write_text(body + SCRIPT)
    assert walle("validate", file).returncode == 0  # runs nothing
    command = ["run", file, "--data-dir", tmp_path / "data", *sets()]
    assert walle(*command, check=False).returncode in {-signal.SIGSEGV, -signal.SIGBUS}
    for _ in range(2):
        again = walle(*command, check=False)
        assert again.returncode == VmStartError.exit_code
        assert "task 'visit'" in again.stderr
    file.with_name("visit.py").write_text(SCRIPT)
    walle(*command)
    run_pipeline(file, tmp_path / "reference", RUNTIME)
    assert features(tmp_path / "data") == features(tmp_path / "reference")
    assert set((tmp_path / "data" / "in-hand").read_bytes()) == {0}


def test_a_body_that_raises_leaves_no_doubt(walle, pipelines, tmp_path):
    file = pipelines[1]
    file.with_name("visit.py").write_text(SCRIPT + "1 / 0\n")
    command = ["run", file, "--data-dir", tmp_path / "data", *sets()]
    first, again = walle(*command, check=False), walle(*command, check=False)
    assert first.returncode == again.returncode > 0
    assert "the last process" not in again.stderr
