"""A fault ends in one clear line and its own exit code; nothing is lost."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import canonical_state
from walle_stream.cli.__main__ import main
from walle_stream.faults import CRASH_POINTS

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
ROW = "712,5239,20220425,0,{time},1,0,0,0,0,0,1,61802,49866,0,0,0,0,1"
HEADER = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
    "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
    "is_profile_enter,is_rand,tab"
)


@pytest.fixture
def pipeline(tmp_path):
    """A copy of the shipped pipeline that a test may damage."""
    (tmp_path / "samples").mkdir()
    for name in ("ipv.yaml", "ipv.py"):
        (tmp_path / name).write_bytes((ROOT / "configs" / name).read_bytes())
    rows = [ROW.format(time=1_650_812_741_436 + 1000 * n) for n in range(50)]
    (tmp_path / "samples/kuairand_feed.csv.gz").write_text("\n".join([HEADER, *rows]) + "\n")
    return tmp_path / "ipv.yaml"


def line_of(done):
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("old", "new", "code", "expected"),
    [
        ("  tasks:", "  taks:", 3, "unknown key 'taks', did you mean 'tasks'?"),
        ("partitions: 16", "partitions: many", 3, "spec.runtime.partitions: "),
        ("script: ipv.py", "script: gone.py", 3, "gone.py"),
        ("connector: files", "connector: filez", 3, "did you mean 'files'?"),
        ("kind: Pipeline", "kind: Pipelin", 3, "did you mean 'Pipeline'?"),
        ("pageTimeout: never", "pageTimeout: 5 parsecs", 3, "expected a duration"),
        ("time: time_ms", "time: time_ms +", 3, "spec.source.time"),
        ("task: ipv", "task: ipw", 3, "did you mean 'ipv'?"),
        ("samples/kuairand_feed.csv.gz", "samples/gone.csv", 4, "gone.csv"),
    ],
)
def test_a_wrong_definition_is_one_line_with_its_place(walle, pipeline, old, new, code, expected):
    text = pipeline.read_text()
    assert old in text
    pipeline.write_text(text.replace(old, new, 1))
    done = walle("run", pipeline, "--data-dir", pipeline.parent / "d", check=False)
    assert done.returncode == code, done.stderr
    line = line_of(done)
    assert expected in line
    if code == 3 and "gone.py" not in expected:
        number = next(
            n for n, each in enumerate(pipeline.read_text().splitlines(), 1) if new in each
        )
        assert f"ipv.yaml:{number}:" in line


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("def run(ctx, page)\n    pass\n", "ipv.py:1"),
        ("import os\n\ndef run(ctx, page):\n    pass\n", "os"),
        ("def go(ctx, page):\n    pass\n", "run"),
    ],
)
def test_a_wrong_script_is_one_line_with_its_place(walle, pipeline, script, expected):
    (pipeline.parent / "ipv.py").write_text(script)
    for command in (["run", pipeline, "--data-dir", pipeline.parent / "d"], ["validate", pipeline]):
        done = walle(*command, check=False)
        assert done.returncode == 3
        assert expected in line_of(done)


def test_a_script_that_raises_on_some_pages_leaves_dead_letters(walle, pipeline):
    script = pipeline.parent / "ipv.py"
    script.write_text(
        script.read_text().replace(
            "    rows = page.rows\n",
            "    rows = page.rows\n    if page.enter_time_ms % 5000 == 1436 % 5000:\n"
            "        raise ValueError(f'no {page.instance}')\n",
        )
    )
    data_dir = pipeline.parent / "d"
    done = walle("run", pipeline, "--data-dir", data_dir, "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["task_runs"], report["task_failures"], report["features"]) == (50, 10, 40)
    letters = walle("dead-letters", "list", "--data-dir", data_dir, "--json").stdout.splitlines()
    first = json.loads(letters[0])
    assert len(letters) == 10
    assert (first["route"], first["task"], first["error"]) == ("task", "ipv", "ValueError")
    assert "ipv.py:" in first["reason"]


def test_broken_rows_are_counted_and_kept_with_the_reason(walle, pipeline):
    feed = pipeline.parent / "samples/kuairand_feed.csv.gz"
    rows = feed.read_text().splitlines()
    rows.insert(10, "1,2,3")
    rows.insert(20, ROW.format(time=""))
    rows.insert(30, ROW.format(time=1_650_800_000_000))  # hours back
    rows.insert(40, ROW.format(time=1) + "x" * 10_000_000)
    feed.write_text("\n".join(rows) + "\n")
    data_dir = pipeline.parent / "d"
    done = walle("run", pipeline, "--data-dir", data_dir, "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["source_rows"] == 54
    assert (report["accepted_rows"], report["late_rows"]) == (50, 1)
    assert report["dead_letter_rows"] == 3
    letters = walle("dead-letters", "list", "--data-dir", data_dir, "--json").stdout.splitlines()
    found = {letter["route"]: letter for letter in map(json.loads, letters)}
    assert set(found) == {"decode", "invalid", "late", "oversized"}
    assert found["decode"]["origin"].endswith(":11")
    assert len(found["oversized"]["raw"]) <= 1024


def test_a_data_dir_of_another_format_version_is_refused(walle, pipeline):
    data_dir = pipeline.parent / "d"
    walle("run", pipeline, "--data-dir", data_dir)
    meta = json.loads((data_dir / "meta.json").read_text())
    (data_dir / "meta.json").write_text(json.dumps({**meta, "format_version": 99}))
    done = walle("run", pipeline, "--data-dir", data_dir, check=False)
    assert done.returncode == 6
    assert "format" in line_of(done)


def test_another_partition_count_or_source_is_refused(walle, pipeline):
    data_dir = pipeline.parent / "d"
    walle("run", pipeline, "--data-dir", data_dir)
    done = walle(
        "run", pipeline, "--data-dir", data_dir, "--set", "spec.runtime.partitions=4", check=False
    )
    assert done.returncode == 6
    assert "16" in line_of(done)
    feed = pipeline.parent / "samples/kuairand_feed.csv.gz"
    feed.write_text(feed.read_text().replace("5239", "5240"))
    done = walle("run", pipeline, "--data-dir", data_dir, check=False)
    assert done.returncode == 4
    assert "not the one" in line_of(done)


def test_a_folder_that_is_no_data_dir_is_left_alone(walle, pipeline):
    foreign = pipeline.parent / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_bytes(b"cat")
    done = walle("run", pipeline, "--data-dir", foreign, check=False)
    assert done.returncode == 6
    assert "photos" in line_of(done)
    assert [path.name for path in foreign.iterdir()] == ["cat.jpg"]


def start(pipeline, data_dir, *settings, feed, code="", **options):
    program = ["-c", code] if code else ["-m", "walle_stream.cli"]
    command = [sys.executable, *program, "run", str(pipeline), "--json"]
    command += ["--data-dir", str(data_dir), "--set", f"spec.source.path={feed}", *settings]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


SLOW_ROWS = 15_000


@pytest.fixture(scope="module")
def slow_feed(tmp_path_factory):
    """A feed that takes some seconds in small batches."""
    path = tmp_path_factory.mktemp("slow") / "long.csv"
    rows = [ROW.format(time=1_650_812_741_436 + 1000 * n) for n in range(SLOW_ROWS)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def whole(slow_feed):
    """The state that a run over it leaves which nothing stopped."""
    data_dir = slow_feed.with_name("whole")
    assembly = Assembly.load(ROOT / "configs/ipv.yaml", [f"spec.source.path={slow_feed}"])
    LocalRun(assembly, RunOptions(data_dir, 1)).run()
    return list(canonical_state(data_dir))


def wait_for_commits(data_dir, process):
    # a commit is visible as a growing log of the partition's database
    seen = threading.Event()
    while process.poll() is None and not any(
        file.stat().st_size > 3_000 for file in data_dir.glob("partitions/*/*.log")
    ):
        seen.wait(0.005)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_what_was_read_and_the_rest_follows(
    walle, pipeline, slow_feed, whole, tmp_path, number
):
    settings = ("--set", "spec.runtime.batchEvents=20")
    process = start(pipeline, tmp_path / "d", *settings, feed=slow_feed)
    wait_for_commits(tmp_path / "d", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert f"stopped by {number.name}" in err
    report = json.loads(out.splitlines()[-1])
    assert report["stopped_by"] == number.name
    assert 0 < report["source_rows"] < SLOW_ROWS
    walle("run", pipeline, "--data-dir", tmp_path / "d", "--set", f"spec.source.path={slow_feed}")
    assert list(canonical_state(tmp_path / "d")) == whole


def test_a_script_that_never_returns_does_not_keep_a_stopped_run(pipeline, slow_feed, tmp_path):
    pipeline.with_name("ipv.py").write_text("def run(ctx, page):\n    while True:\n        pass\n")
    text = pipeline.read_text().replace("  config:", "  limits: {wallTime: 60s}\n  config:")
    pipeline.write_text(text)
    phase = tmp_path / "phase"
    phase.write_bytes(b"\0")
    environ = {**os.environ, "WALLE_PHASE_FILE": str(phase)}
    # the command itself, but it waits a second, not ten
    impatient = """
import sys
from walle_stream.cli import __main__, run
run.FINISH_TIMEOUT_S, run.FLUSH_TIMEOUT_S = 1.0, 0.1
sys.exit(__main__.main(sys.argv[1:]))
"""
    process = start(pipeline, tmp_path / "d", feed=slow_feed, env=environ, code=impatient)
    # until the first batch was read: its runs never return
    read = {CRASH_POINTS.index(name) + 1 for name in ("read.batch", "vm.before")}
    seen = threading.Event()
    while process.poll() is None and phase.read_bytes()[0] not in read:
        seen.wait(0.005)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 10
    assert err.startswith("walle: asked to stop, but a script or an unreachable broker")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_a_script_that_is_stuck_in_c_ends_its_process_and_nothing_is_lost(
    walle, pipeline, tmp_path, isolation
):
    rows = [ROW.format(time=1_650_812_741_436 + 1000 * n) for n in range(50)]
    rows[25:] = [row.replace("712,", "713,", 1) for row in rows[25:]]
    feed = pipeline.with_name("samples") / "kuairand_feed.csv.gz"
    feed.write_text("\n".join([HEADER, *rows]) + "\n")
    script = pipeline.with_name("ipv.py")
    stuck = "    if ctx.device_id == '713':\n        sum(range(10**15))\n    rows = page.rows\n"
    script.write_text(script.read_text().replace("    rows = page.rows\n", stuck, 1))
    given = f"  limits: {{wallTime: 50ms}}\n  isolation: {isolation}\n  config:"
    pipeline.write_text(pipeline.read_text().replace("  config:", given))
    done = walle("run", pipeline, "--data-dir", tmp_path / "d", "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    is_host = isolation != "process"
    assert ("task 'ipv' is stuck in C code on device '713'" in done.stderr) == is_host
    assert ("restarting the process" in done.stderr) == is_host
    assert (report["source_rows"], report["features"], report["task_failures"]) == (50, 25, 25)
    letters = walle("dead-letters", "list", "--data-dir", tmp_path / "d").stdout
    assert letters.count("quarantined on device '713'") == 25


def test_runs_that_take_too_much_memory_leave_dead_letters(walle, pipeline, tmp_path):
    eats = """    kept = []
    while page.enter_time_ms % 25_000 == 12_436:
        if len(kept) < 260:  # above the watchdog's bound, below that of the system
            kept.append(bytes(1_000_000) + b"x")
        sum(range(20_000))
    if page.enter_time_ms % 10_000 == 2_436:
        bytes(10**9)
    rows = page.rows
"""
    script = pipeline.with_name("ipv.py")
    script.write_text(script.read_text().replace("    rows = page.rows\n", eats, 1))
    text = pipeline.read_text().replace(
        "  config:", "  limits: {wallTime: 60s, strikes: 9}\n  config:"
    )
    pipeline.write_text(text)
    settings = ("--data-dir", tmp_path / "d", "--set", "spec.runtime.memory=300MiB")
    done = walle("run", pipeline, "--json", *settings)
    report = json.loads(done.stdout.splitlines()[-1])
    letters = walle("dead-letters", "list", "--data-dir", tmp_path / "d", "--json").stdout
    errors = [json.loads(line)["error"] for line in letters.splitlines()]
    assert (report["source_rows"], report["features"]) == (50, 44)
    # what the first held may not be all given back yet: then the second meets the system's bound
    assert sorted(set(errors)) == ["MemoryError", "RunStopped"]
    assert errors.count("MemoryError") >= 4
    assert "too much memory (runtime.memory)" in letters


def test_a_locked_data_dir_is_refused_with_the_owners_pid(walle, pipeline, slow_feed, tmp_path):
    settings = ("--set", "spec.runtime.batchEvents=5")
    process = start(pipeline, tmp_path / "d", *settings, feed=slow_feed)
    try:
        wait_for_commits(tmp_path / "d", process)
        process.send_signal(signal.SIGSTOP)
        done = walle("run", pipeline, "--data-dir", tmp_path / "d", check=False)
        assert done.returncode == 7
        assert str(process.pid) in line_of(done)
    finally:
        process.kill()
        process.communicate()


def test_a_full_disk_stops_the_run_and_the_rest_follows(
    walle, pipeline, slow_feed, whole, tmp_path
):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    process = start(pipeline, tmp_path / "d", feed=slow_feed, preexec_fn=limit)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 8, err
    assert len(err.strip().splitlines()) == 1
    walle("run", pipeline, "--data-dir", tmp_path / "d", "--set", f"spec.source.path={slow_feed}")
    assert list(canonical_state(tmp_path / "d")) == whole


def test_reading_a_missing_data_dir_is_one_line(walle, tmp_path):
    for command in (["features", "list"], ["dead-letters", "list"], ["state", "export"]):
        done = walle(*command, "--data-dir", tmp_path / "none", check=False)
        assert done.returncode == 6
        assert "no data directory" in line_of(done)


def test_output_into_a_closed_pipe_is_no_error(pipeline, walle, tmp_path):
    walle("run", pipeline, "--data-dir", tmp_path / "d")
    command = (
        f"{sys.executable} -m walle_stream.cli features list --data-dir {tmp_path}/d | head -1"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert json.loads(done.stdout)["task"] == "ipv"
    assert not done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "ipv", "--hosts", "1000000"], "--hosts: 1000000 is not 256 or less"),
        (["run", "ipv", "--hosts", "0"], "--hosts: 0 is not 1 or more"),
        (["features", "get", "", "--data-dir", "d"], "the device id is empty"),
        (["features", "get", "x" * 10_240, "--data-dir", "d"], "the device id has 10240 bytes"),
        (["features", "get", os.fsdecode(b"\xff"), "--data-dir", "d"], "is not valid Unicode"),
        (["status", "d", "--devise", "x" * 10_240], "unrecognized arguments: --devise xxx"),
        (["rum"], "invalid choice: 'rum', did you mean 'run'?"),
        (["run", "shop", "--ledgr"], "--ledgr, did you mean --ledger?; see walle run --help"),
        ([], "COMMAND"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, monkeypatch, capsys, arguments, expected):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("walle: ")
    assert expected in line
    assert len(line) < 400
    assert not list(tmp_path.iterdir())


def test_a_data_dir_whose_name_is_not_text_is_refused(walle, pipeline, tmp_path):
    path = tmp_path / os.fsdecode(b"\xff")
    done = walle("run", pipeline, "--data-dir", path, check=False)
    assert done.returncode == 6
    assert "has a name that is not text: give another --data-dir" in line_of(done)
    assert not path.exists()
