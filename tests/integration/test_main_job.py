"""The main job against an independent recomputation, whatever the cut of batches."""

import gc
import gzip
import importlib.util
import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.conftest import ROOT
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.app.resources import shipped_configs

pytestmark = pytest.mark.integration

_spec = importlib.util.spec_from_file_location(
    "naive_ipv", Path(__file__).with_name("naive_ipv.py")
)
naive_ipv = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive_ipv)


QUERIES = (
    ("features", "list", "--json"),
    ("state", "export", "--canonical"),
    ("dead-letters", "list", "--json"),
)


def features_of(data_dir):
    found = {}
    for line in features_lines(data_dir):
        row = json.loads(line)
        history = found.setdefault(row["device_id"], [])
        history.append(row["feature"])
        assert row["sequence_number"] == len(history)
    return found


def bytes_of(data_dir):
    return b"\n".join(canonical_state(data_dir))


@pytest.fixture(scope="module", params=["sample", pytest.param("whole", marks=pytest.mark.full)])
def feed(request, sample):
    """The shipped sample of the KuaiRand feed, and all of it where the workspace has it."""
    if request.param == "sample":
        return sample
    whole = ROOT.parent / "shared/data/kuairand/feed.csv.gz"
    if not whole.exists():
        pytest.skip("the whole feed lies beside the checkout in the workspace only")
    return whole


@pytest.fixture(scope="module")
def recomputed(feed):
    return naive_ipv.recompute(feed)


def test_a_published_feed_gives_the_reference_counts_and_features(job, recomputed, feed, tmp_path):
    report = job(tmp_path / "d", feed)
    counts, expected = recomputed
    assert {name: report[name] for name in counts} == counts
    assert report["features"] == sum(map(len, expected.values()))
    assert report["cloud"] == {
        "features": report["features"],
        "devices": len(expected),
        "duplicates_dropped": 0,
        "gaps": 0,
        "frames_refused": 0,
    }
    assert report["encoded_bytes"] == 128 * report["features"]
    assert features_of(tmp_path / "d") == expected


@pytest.mark.full
@pytest.mark.parametrize("feed", ["whole"], indirect=True)
def test_the_reference_counts_of_the_whole_feed(recomputed):
    counts, expected = recomputed
    features = [feature for history in expected.values() for feature in history]
    assert counts["source_rows"] == 170_073
    assert counts["duplicate_rows"] == 4_405
    assert counts["events"] == 545_940
    assert len(features) == counts["page_sequences"] == 149_221
    assert len(expected) == 18_582
    assert sum(history[-1]["session_index"] + 1 for history in expected.values()) == 128_456
    assert sum(feature["dwell_ms"] for feature in features) == 3_648_085_531
    assert sum(sum(feature["clicks"].values()) for feature in features) == 6_960


@pytest.fixture(scope="module")
def unseen(tmp_path_factory):
    """A feed of the same format that differs in every way that may matter."""
    rng = random.Random(7)
    header = (
        "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
        "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
        "is_profile_enter,is_rand,tab"
    )
    rows, time_ms = [], 1_650_000_000_000
    for _ in range(3_000):
        time_ms += rng.choice([0, 0, 1, 40, 2_000, 90_000, 2_500_000])
        flags = [str(int(rng.random() < 0.2)) for _ in range(6)]
        play_ms = rng.choice([0, 1, 2, 7, 900, 30_000, 4_000_000, 200_000_000])
        row = [f"u{rng.randrange(60)}", str(rng.randrange(30)), "20220425", "0", str(time_ms)]
        row += [*flags, "0", str(play_ms), str(rng.choice([0, 1, 9_000, 60_000]))]
        row += [
            str(rng.randrange(3)),
            "0",
            str(int(rng.random() < 0.1)),
            "0",
            str(rng.randrange(4)),
        ]
        rows.append(",".join(row))
        if rng.random() < 0.05:
            rows.append(rows[-rng.randrange(1, min(len(rows), 50))])  # duplicates, not only beside
    rows.insert(2_000, rows[10].replace("u", "x", 1))  # hours late
    path = tmp_path_factory.mktemp("unseen") / "feed.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_feed_not_seen_before_equals_the_recomputation(
    quick_job, unseen, reference, walle, tmp_path
):
    report = quick_job(tmp_path / "d", unseen)
    counts, expected = naive_ipv.recompute(unseen)
    assert counts["late_rows"] > 0
    assert counts["duplicate_rows"] > 50
    assert {name: report[name] for name in counts} == counts
    assert features_of(tmp_path / "d") == expected
    # all that a user can ask of it says the same, whatever the runtime
    told = {}
    for data_dir in (tmp_path / "d", reference.data_dir):
        status = json.loads(walle("status", data_dir, "--json").stdout)
        told[data_dir] = [
            *(walle(*words, "--data-dir", data_dir).stdout for words in QUERIES),
            status["phase"],
            [(each["number"], each["events"], each["features"]) for each in status["partitions"]],
        ]
    assert told[tmp_path / "d"] == told[reference.data_dir]
    assert all(told[reference.data_dir][:3])


class Reference(NamedTuple):
    """The unseen feed's run to compare with."""

    data_dir: Path
    content: bytes


@pytest.fixture(scope="module")
def reference(tmp_path_factory, unseen, walle):
    data_dir = tmp_path_factory.mktemp("reference") / "d"
    walle("run", "ipv", "--set", f"spec.source.path={unseen}", "--data-dir", data_dir)
    return Reference(data_dir, bytes_of(data_dir))


@pytest.mark.parametrize(
    ("hosts", "runtime"),
    [
        (1, {"batchEvents": 1}),
        (3, {"batchEvents": 7}),
        (16, {"batchEvents": 500}),
        (2, {"batchEvents": 5_000}),
        (1, {"batchEvents": 50, "activeDevices": 0}),
    ],
)
def test_the_bytes_depend_neither_on_batches_nor_hosts_nor_passivation(
    job, unseen, reference, tmp_path, hosts, runtime
):
    settings = [f"runtime.{key}={value}" for key, value in runtime.items()]
    job(tmp_path / "d", unseen, *settings, hosts=hosts)
    assert bytes_of(tmp_path / "d") == reference.content


def test_limits_and_then_the_rest_are_the_whole_run_and_one_more_does_nothing(
    job, unseen, reference, tmp_path
):
    total = len(unseen.read_text().splitlines()) - 1
    limits = [0, 17, 1, 900, 100_000]
    for count, limit in enumerate(limits, start=1):
        whole = job(tmp_path / "d", unseen, limit=limit)
        assert whole["source_rows"] == min(sum(limits[:count]), total)
    assert bytes_of(tmp_path / "d") == reference.content
    again = job(tmp_path / "d", unseen)
    assert again["run_events"] == 0
    assert all(again[name] == whole[name] for name in ("events", "features"))
    assert bytes_of(tmp_path / "d") == reference.content


def test_the_rows_add_up(job, unseen, tmp_path):
    broken = tmp_path / "broken.csv"
    lines = unseen.read_text().splitlines()
    lines.insert(100, "not,enough,columns")
    lines.insert(200, lines[150].replace(lines[150].split(",")[4], "yesterday"))
    broken.write_text("\n".join(lines) + "\n")
    report = job(tmp_path / "d", broken)
    assert report["dead_letter_rows"] == 2
    parts = ("accepted_rows", "duplicate_rows", "late_rows", "dead_letter_rows")
    assert report["source_rows"] == sum(report[name] for name in parts)


def test_a_gzipped_feed_is_the_same_feed(job, unseen, reference, tmp_path):
    packed = tmp_path / "feed.csv"  # recognised by its content
    packed.write_bytes(gzip.compress(unseen.read_bytes()))
    job(tmp_path / "d", packed)
    assert bytes_of(tmp_path / "d") == reference.content


def test_a_run_leaves_the_collector_as_it_was(tmp_path):
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    assembly = Assembly.load(shipped_configs() / "ipv.yaml", [])
    LocalRun(assembly, RunOptions(tmp_path / "d", 1, limit=50)).run()
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() <= frozen
