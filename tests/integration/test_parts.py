"""The main job over a file that was cut by partition: locally, and on two hosts of Ray."""

import gzip
import json
from pathlib import Path

import pytest

from tests.integration.conftest import feed_rows, needs_ray, report_of
from walle_stream.app.queries.query import canonical_state, features_lines

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    """Rows of the sample; some that are none, late or there twice, and devices that cannot be."""
    header, lines = feed_rows()
    lines += [b"a,b", b"77," + lines[0].partition(b",")[2], *lines[:40]]
    path = tmp_path_factory.mktemp("feed") / "feed.csv.gz"
    path.write_bytes(gzip.compress(b"\n".join([header, *lines]) + b"\n"))
    return path


@pytest.fixture(scope="module")
def run(walle):
    def run(source, data_dir, *arguments, **options):
        where = ("--set", f"spec.source.path={source}", "--data-dir", data_dir, "--json")
        return walle("run", ROOT / "configs/ipv.yaml", *where, *arguments, **options)

    return run


@pytest.fixture(scope="module")
def whole(run, feed, tmp_path_factory):
    """A run over the file in one piece."""
    data_dir = tmp_path_factory.mktemp("whole") / "d"
    return report_of(run(feed, data_dir)), data_dir


@pytest.fixture(scope="module")
def parts(walle, feed):
    done = walle(
        "partition", ROOT / "configs/ipv.yaml", "--set", f"spec.source.path={feed}", "--json"
    )
    made = report_of(done)
    assert made["folder"] == f"{feed}.parts"
    return Path(made["folder"])


def outcome(walle, data_dir):
    letters = walle("dead-letters", "list", "--data-dir", data_dir, "--json").stdout
    return (
        list(features_lines(data_dir)),
        list(canonical_state(data_dir)),
        sorted(letters.split("\n")),
    )


COUNTS = ("source_rows", "duplicate_rows", "late_rows", "dead_letter_rows", "raw_bytes", "features")


@needs_ray
def test_two_hosts_over_parts_make_the_bytes_of_one_over_the_file(
    run, walle, whole, parts, ray_environ, tmp_path
):
    report, data_dir = whole
    ray = ("--runtime", "ray", "--hosts", 2)
    # a limited run first: the same rows for two hosts as for one
    local = report_of(run(parts, tmp_path / "local", "--limit", 700))
    remote = report_of(run(parts, tmp_path / "d", "--limit", 700, *ray, environ=ray_environ))
    for each in (local, remote):
        assert (each["source_rows"], each["stopped_by"]) == (700, "limit")
    assert outcome(walle, tmp_path / "d") == outcome(walle, tmp_path / "local")
    # hosts die at commits all the time, and go on
    small = ("--set", "spec.runtime.batchEvents=50")
    crash = {"WALLE_CRASH": "commit.after:40"}
    rest = report_of(run(parts, tmp_path / "d", *ray, *small, environ=crash))
    assert rest["stopped_by"] == "end"
    status = json.loads(walle("status", tmp_path / "d", "--json").stdout)
    assert sum(host["restarts"] for host in status["hosts"]) > 0
    assert outcome(walle, tmp_path / "d") == outcome(walle, data_dir)
    assert [rest[name] for name in COUNTS] == [report[name] for name in COUNTS]
    assert all(report[name] for name in COUNTS)


def test_one_process_over_parts_makes_the_same_bytes(run, walle, whole, parts, tmp_path):
    report, data_dir = whole
    for number in range(2):  # the second has nothing left to read
        found = report_of(run(parts, tmp_path / "d"))
        assert [found[name] for name in COUNTS] == [report[name] for name in COUNTS], number
    assert outcome(walle, tmp_path / "d") == outcome(walle, data_dir)


def test_a_cut_that_was_killed_is_not_taken_for_whole(run, walle, feed, tmp_path):
    out = tmp_path / "parts"
    cut = ("partition", ROOT / "configs/ipv.yaml", "--set", f"spec.source.path={feed}", "--to", out)
    killed = walle(*cut, environ={"WALLE_CRASH": "read.batch:1"}, check=False)
    assert killed.returncode == -9
    done = run(out, tmp_path / "d", check=False)
    assert done.returncode == 4
    [line] = done.stderr.splitlines()
    assert "no complete parts: run walle partition again" in line
    assert not (tmp_path / "d" / "meta.json").exists()
    assert "rows in 16 parts" in walle(*cut).stdout
    assert len([*out.iterdir()]) == 3  # what the killed one left is gone


def test_other_partitions_and_a_ledger_are_refused_in_one_line(run, parts, tmp_path):
    done = run(parts, tmp_path / "d", "--set", "spec.runtime.partitions=4", check=False)
    assert done.returncode == 4
    [line] = done.stderr.splitlines()
    assert line.endswith("run walle partition again, or set spec.runtime.partitions=16")
    assert not (tmp_path / "d" / "meta.json").exists()
    done = run(parts, tmp_path / "d", "--ledger", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "parts have no raw rows" in done.stderr


def test_parts_of_another_file_are_no_continuation_of_a_snapshot(run, walle, feed, parts, tmp_path):
    kept = ("--set", f"spec.state.snapshots.url=file://{tmp_path}/kept")
    run(parts, tmp_path / "d", *kept)
    header, *lines = gzip.decompress(feed.read_bytes()).splitlines()
    other = tmp_path / "other.csv"
    other.write_bytes(b"\n".join([header, *lines[: len(lines) // 2]]) + b"\n")
    walle("partition", ROOT / "configs/ipv.yaml", "--set", f"spec.source.path={other}")
    done = run(f"{other}.parts", tmp_path / "e", *kept, check=False)
    assert done.returncode == 4
    [line] = [each for each in done.stderr.splitlines() if each.startswith("walle: ")]
    assert "was cut from another file" in line
