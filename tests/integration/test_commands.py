"""The other sub-commands, and the second pipeline."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


def test_otto_features_equal_a_recomputation(walle, tmp_path):
    done = walle("run", ROOT / "configs/otto.yaml", "--data-dir", tmp_path / "d", "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    expected = {}
    for line in (ROOT / "configs/samples/otto_sessions.jsonl").read_text().splitlines():
        session = json.loads(line)
        views, cart, features = {}, [], []
        for event in session["events"]:
            item, now_ms = str(event["aid"]), event["ts"]
            if event["type"] == "clicks":
                count, first_ms, _ = views.pop(item, (0, now_ms, now_ms))
                views[item] = (count + 1, first_ms, now_ms)
                if len(views) > 200:
                    del views[next(iter(views))]
                continue
            action = event["type"].removesuffix("s")
            count, first_ms, last_ms = views.get(item, (0, None, None))
            features.append(
                {
                    "device_id": str(session["session"]),
                    "item_id": item,
                    "action": action,
                    "time_ms": now_ms,
                    "views_before": count,
                    "first_view_ago_ms": None if first_ms is None else now_ms - first_ms,
                    "last_view_ago_ms": None if last_ms is None else now_ms - last_ms,
                    "items_viewed": len(views),
                    "was_in_cart": item in cart,
                    "cart_size": len(cart),
                }
            )
            if action == "order" and item in cart:
                cart.remove(item)
            elif action == "cart" and item not in cart:
                cart.append(item)
        if features:
            expected[str(session["session"])] = features
    found = {}
    for line in walle("features", "list", "--data-dir", tmp_path / "d").stdout.splitlines():
        row = json.loads(line)
        found.setdefault(row["device_id"], []).append(row["feature"])
    assert found == expected
    assert report["events"] == 862
    assert report["features"] == sum(map(len, expected.values()))


def test_a_new_pipeline_runs_as_it_is_and_so_does_its_test(walle, tmp_path):
    walle("init", tmp_path / "mine")
    walle("validate", tmp_path / "mine/pipeline.yaml")
    done = walle("run", tmp_path / "mine/pipeline.yaml", "--data-dir", tmp_path / "d", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["features"] == 3
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(tmp_path / "mine")]
    tested = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 passed" in tested.stdout, tested.stdout
    again = walle("init", tmp_path / "mine", check=False)
    assert again.returncode == 3
    assert "not empty" in again.stderr


def test_features_of_one_device_and_task(walle, run_ipv, tmp_path):
    run_ipv(tmp_path / "d", "--limit", 300)
    lines = walle("features", "list", "--data-dir", tmp_path / "d", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    order = [(row["device_id"], row["sequence_number"]) for row in rows]
    last = Counter()
    for device, number in order:
        last[device] += 1
        assert number == last[device]
    assert set(rows[0]) == {"device_id", "task", "task_version", "sequence_number", "feature"}
    device = rows[0]["device_id"]
    own = walle("features", "get", device, "--data-dir", tmp_path / "d").stdout.splitlines()
    assert own == [
        line for line, row in zip(lines, rows, strict=True) if row["device_id"] == device
    ]
    other = walle("features", "list", "--data-dir", tmp_path / "d", "--task", "none").stdout
    assert not other
    file = tmp_path / "features.parquet"
    said = walle("features", "export", file, "--data-dir", tmp_path / "d", "--json").stdout
    assert json.loads(said)["features"] == len(lines)
    exported = parquet.read_table(file).to_pylist()
    assert [row["feature.item_id"] for row in exported] == [
        row["feature"]["item_id"] for row in rows
    ]


def test_the_report_has_the_stable_fields(run_ipv, tmp_path):
    report = run_ipv(tmp_path / "d", "--limit", 300)
    names = (
        "source_rows accepted_rows duplicate_rows late_rows dead_letter_rows devices events "
        "page_sequences task_runs task_failures features raw_bytes feature_bytes encoded_bytes "
        "uplink_bytes exit_to_commit_ms wall_s cpu_s events_per_cpu_second"
    )
    assert set(names.split()) <= set(report)
    assert set(report["exit_to_commit_ms"]) == {"p50", "p99"}


def test_a_person_sees_features_and_the_table(walle, tmp_path):
    done = walle("run", "otto", "--data-dir", tmp_path / "d", cwd=tmp_path)
    assert '"feature":{' in done.stdout
    for word in ("rows", "devices", "events", "features", "raw bytes", "p50 / p99"):
        assert word in done.stdout


def test_metrics_health_and_readiness_are_served_while_it_runs(tmp_path):
    seen = threading.Event()
    config = (ROOT / "configs/template/pipeline.yaml").read_text()
    (tmp_path / "p.yaml").write_text(config)
    (tmp_path / "visit.py").write_bytes((ROOT / "configs/template/visit.py").read_bytes())
    rows = (ROOT / "configs/template/visits.csv").read_text()
    regular = tmp_path / "regular.csv"
    regular.write_text(
        rows + "".join(f"p,{1700000020000 + n},home,enter,x\n" for n in range(400_000))
    )
    command = [sys.executable, "-m", "walle_stream.cli", "run", str(tmp_path / "p.yaml")]
    command += ["--set", f"spec.source.path={regular}", "--data-dir", str(tmp_path / "d")]
    command += ["--metrics", ":0", "--log-level", "info", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                port = found[1]
                break
        assert port is not None
        for _ in range(2_000):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.read() == b"ok\n"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                    assert answer.read() == b"ready\n"
                    break
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != 503:
                    raise
                seen.wait(0.01)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        assert "# TYPE walle_events_total counter" in text
        assert 'walle_watermark_ms{partition="0"}' in text
        assert 'walle_exit_to_commit_ms_bucket{le="+Inf"}' in text
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_metrics_address_that_is_taken_or_wrong_is_one_line(walle, tmp_path):
    for address in ("nonsense", ":99999"):
        arguments = ["run", "otto", "--data-dir", tmp_path / "d", "--metrics", address]
        done = walle(*arguments, check=False, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_wrong_usage_exits_with_2(walle):
    for arguments in ([], ["run"], ["run", "x", "--limit", "-1"], ["frobnicate"]):
        assert walle(*arguments, check=False).returncode == 2


def test_the_schema_is_json(walle):
    schema = json.loads(walle("schema", "export").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_files_of_the_current_directory_are_not_imported(walle, tmp_path):
    for name in ("random", "yaml", "walle_stream"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)")
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    command = [Path(sys.executable).with_name("walle"), "run", "ipv", "--limit", "5", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["source_rows"] == 5


def test_two_new_projects_have_names_and_data_of_their_own(walle, tmp_path):
    for name in ("one", "Zwei Ü"):
        walle("init", tmp_path / name)
    names = [
        json.loads(walle("validate", tmp_path / name / "pipeline.yaml", "--json").stdout)["name"]
        for name in ("one", "Zwei Ü")
    ]
    assert names == ["one", "zwei"]
    done = walle("init", tmp_path / "one/visits.csv/no", check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)


def test_failed_runs_are_named_at_the_end(walle, tmp_path):
    walle("init", tmp_path / "p")
    (tmp_path / "p/visit.py").write_text("def run(ctx, page): raise ValueError('no')")
    command = ("run", tmp_path / "p/pipeline.yaml", "--data-dir", tmp_path / "d", "--json")
    line, _ = walle(*command, "--allow-empty").stderr.splitlines()
    assert "failed runs: walle dead-letters list --data-dir" in line
    letters = walle("dead-letters", "list", "--data-dir", tmp_path / "d").stdout
    assert "ValueError: no" in letters


def test_a_data_dir_that_lost_a_part_is_refused(walle, tmp_path):
    walle("run", "ipv", "--limit", "500", "--data-dir", tmp_path / "d", "--json")
    shutil.rmtree(tmp_path / "d/partitions/03")
    for command in (["run", "ipv"], ["features", "list"], ["state", "export", "--canonical"]):
        done = walle(*command, "--data-dir", tmp_path / "d", check=False)
        assert (done.returncode, "has lost partitions/03" in done.stderr) == (6, True)


def test_output_that_does_not_fit_is_one_line(walle, tmp_path):
    for command in (["schema", "export"], ["run", "ipv", "--limit", "5", "--data-dir", "d"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "walle_stream.cli", *command],
                cwd=tmp_path,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, len(done.stderr.splitlines())) == (8, 1), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_ends_it_without_a_trace(tmp_path, number):
    # at the beginning of the program's own code, before the re-exec and after it
    for salt in ("0", "1"):
        code = (
            "import os, signal, sys; from walle_stream.cli import __main__ as program;"
            "program._fix_hash_seed = lambda _: os.kill(os.getpid(), int(sys.argv.pop()));"
            "sys.exit(program.main())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "run", "ipv", str(int(number))],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0
        assert done.stderr == f"walle: stopped by {number.name} before anything was read\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_undoes_what_another_command_has_half_done(tmp_path, number):
    code = (
        "import os, signal, sys; from walle_stream.cli import __main__ as program\n"
        # whoever runs tests in the background has it ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def half(_):\n"
        "    try: os.kill(os.getpid(), int(sys.argv.pop()))\n"
        "    finally: print('undone')\n"
        "program._dispatch = half; sys.exit(program.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "replay", str(int(number))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "undone\n", "walle: interrupted\n")
