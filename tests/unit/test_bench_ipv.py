"""The benchmark of both ways to a feature: its input, its network, its judgement, its report."""

import json
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def bench():
    """Import a module of bench/ by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield import_module


@pytest.fixture
def outcome(bench):
    rounds = bench("ipv_parts.rounds")
    watching = bench("ipv_parts.watching")

    def make(features, *, committed=True, doubled=0):
        exits = {(f"d{n}", "v"): 100.0 * n for n in range(10)}
        return rounds.Outcome(
            exits,
            {
                key: watching.Usable(exits.get(key, 0.0) + 9.0, each)
                for key, each in features.items()
            },
            {key: exits[key] + 4.0 for key in features if key in exits} if committed else {},
            doubled,
            {"device": 1.0, "cloud": 2.0},
            1_000,
            {"ours": 0.5, "others": 0.0, "stolen": 0.0, "waited": 0.0},
        )

    return make


TRUTH = {(f"d{n}", "v"): {"cause": "exit", "n": n} for n in range(10)}


def test_the_shop_is_as_it_happens_and_its_truth_has_views_that_ended(bench):
    shop = bench("ipv_parts.shop")

    lines = shop.shop_lines(20, 7, 600)
    events = [json.loads(line) for line in lines]
    assert lines == shop.shop_lines(20, 7, 600)
    assert len({event["uid"] for event in events}) == 600
    times = [event["ingest_time_ms"] for event in events]
    assert times == sorted(times)
    exits = {
        (event["device_id"], event["page_instance"])
        for event in events
        if event["kind"] == "page_exit" and event["page_id"] == "item"
    }
    assert set(shop.true_features(lines)) == exits


def test_a_network_without_faults_is_the_schedule(bench):
    network = bench("ipv_parts.network")

    plan = list(network.arrivals(5, 10.0, network.Network(), 1))
    assert plan == [(0.0, 0), (0.1, 1), (0.2, 2), (0.3, 3), (0.4, 4)]


def test_a_network_with_faults_has_its_declared_rates(bench):
    network = bench("ipv_parts.network")

    plan = list(network.arrivals(20_000, 100.0, network.FAULTY, 1))
    assert plan == sorted(plan)
    numbers = [number for _, number in plan]
    assert 10 <= 20_000 - len(set(numbers)) <= 35  # lost, one in a thousand
    assert 150 <= len(numbers) - len(set(numbers)) <= 250
    first = {}
    for at_s, number in plan:
        first.setdefault(number, at_s)
    late = [at_s - number / 100.0 for number, at_s in first.items() if at_s > number / 100.0]
    assert 150 <= len(late) <= 250
    assert max(late) <= network.FAULTY.lateness_s


def test_lateness_is_of_the_shops_time(bench):
    network = bench("ipv_parts.network")

    def late(pace):
        faults = network.Network(late=1.0, lateness_s=2.0)
        plan = network.arrivals(1_000, 100.0, faults, 1, pace)
        return max(at_s - number / 100.0 for at_s, number in plan)

    assert late(20.0) == pytest.approx(late(1.0) / 20.0)


def test_a_round_as_it_should_be_has_latencies_and_no_errors(bench, outcome):
    judging = bench("ipv_parts.judging")

    found = judging.judge(outcome(TRUTH), TRUTH)
    assert found["committed_ms"] == {"count": 8, "p50": 4.0, "p99": 4.0, "max": 4.0}
    assert found["usable_ms"]["p50"] == 9.0
    assert judging.wrong_share([found]) == 0.0


def test_missing_differing_doubled_and_invented_features_are_errors(bench, outcome):
    judging = bench("ipv_parts.judging")

    features = {**TRUTH, ("d3", "v"): {"cause": "exit", "n": -1}, ("d4", "w"): {"cause": "exit"}}
    del features["d5", "v"]
    found = judging.judge(outcome(features, committed=False, doubled=2), TRUTH)
    assert found["errors"] == {
        "expected": 10,
        "missing": 1,
        "differing": 1,
        "beyond": 1,
        "doubled": 2,
    }
    assert judging.wrong_share([found]) == 0.5
    assert "committed_ms" not in found


def test_the_report_shows_tables_and_figure(bench, outcome, monkeypatch, tmp_path):
    report = bench("report")
    judging = bench("ipv_parts.judging")
    network = bench("ipv_parts.network")

    device = judging.judge(outcome(TRUTH), TRUTH)
    baseline = judging.judge(outcome(TRUTH, committed=False), TRUTH)
    scene = {"device": [device] * 3, "baseline": [baseline] * 3}
    result = {
        "bench": "ipv",
        "trial": False,
        "quick": False,
        "seed": 1,
        "settings": {"rounds": 3, "others": 1, "seconds": 5, "devices": 10},
        "baseline_events_per_s": 900.0,
        "baseline_capacities": [800.0, 900.0, 1_100.0],
        "events_per_s": 450.0,
        "fed_events": 2_250,
        "network": network.FAULTY._asdict() | {"clock": "shop"},
        "phones": {"devices": 20, "events_per_s": 80.0, "fed_events": 400},
        "merging_cpu_s": 1.25,
        "clean": scene,
        "faulty": scene,
        "phone": scene,
        "bytes": {
            "none": {"device": 49, "device_json": 80, "baseline": 1_000, "features": 7},
            "zstd": {"device": 110, "device_json": 150, "baseline": 1_000, "features": 7},
        },
        "machine": {"processor": "x", "usable_cores": 2, "load_before_and_after": [0.1, 0.2]},
        "versions": {"python": "3.14"},
        "date": "2026-11-22",
    }
    result["bars"] = judging.bars(result)
    assert [bar["met"] for bar in result["bars"]] == [True, True, True, False, True, False, True]
    # what was not measured properly is not met
    for kind, note in (("quick", "a quick look"), ("trial", "a trial on a busy machine")):
        found = judging.bars(result | {kind: True})
        assert {(bar["met"], bar["note"]) for bar in found} == {(False, note)}
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "ipv.json").write_text(json.dumps(result))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "half of the 900 a second that the baseline takes, the median of 3;" in text
    assert "| 4.9 | met; features as compact; as JSON, which raw events are, 8 % |" in text
    assert "met; with outOfOrder: 0s, as configs/ipv-kafka.yaml has it |" in text
    assert "4.90%" in text
    assert "8.00%" in text
    assert "3 of each, 1 with faults" in text
    assert "2 s late by the shop's clock" in text
    assert "20 devices with 80 events a second together" in text
    assert "| merging them into the cloud's table, either way |  | 1.2 |" in text
    assert "0.7 % of the cloud's features wrong" in text
    assert (tmp_path / "ipv.svg").read_text().startswith("<svg")
