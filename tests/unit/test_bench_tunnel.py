"""The tunnel's benchmark without a broker: records to send, and notes on the figures."""

import json
import random
from pathlib import Path

import pytest

from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body

ROOT = Path(__file__).resolve().parents[2]
SIZES = [300, 1_000, 3_000, 10_000, 30_000, 100_000]
TIMES = {"count": 9, "mean": 5.0, "p50": 4.0, "p99": 20.0, "max": 21.0}


@pytest.fixture(autouse=True)
def _bench_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.fixture
def result():
    """As a whole run on a quiet machine would leave it, every time the same."""
    middle = {"q1": 1.0, "median": 2.0, "q3": 3.0}
    flat = {"records": 9, "records_per_s": 1e4, "records_per_cpu_s": 2e4, "bytes_per_record": 250.0}
    warm = [
        {"transport": transport, "link": link, "way": way, "who": who, "size": size}
        | {"received_ms": dict(TIMES), "acked_ms": dict(TIMES)}
        for transport in ("plain", "TLS")
        for link in ("loopback", "50 ms", *(["phone"] if transport == "TLS" else []))
        for way in ("up", "down")
        for who in ("ours", "bare")
        for size in SIZES
    ]
    cold = [
        {"transport": "TLS", "link": "loopback", "way": way, "who": "ours", "state": state}
        | {"size": size, "samples": 2, "ms": middle, "full": 1, "resumed": 2}
        for way in ("up", "down")
        for state in ("cold", "resumed")
        for size in SIZES
    ]
    return {
        "bench": "tunnel",
        "trial": False,
        "quick": False,
        "seed": 1,
        "settings": {"samples": 9, "cold": 2, "records": 9},
        "sizes": SIZES,
        "parts": ["warm", "cold", "throughput"],
        "listeners": ["plain", "TLS"],
        "warm": warm,
        "cold": cold,
        "handshake": [
            {"link": "loopback", "state": state, "wall_ms": middle, "cpu_ms": middle}
            | {"samples": 9, "reused": 9 if state == "resumed" else 0}
            for state in ("whole", "resumed")
        ],
        "throughput": [{"who": "ours", "codec": "zstd", "batch": 10} | flat],
        "linger": [{"linger_ms": 0, "ms": middle} | flat],
        "controls": [{"seconds": 1.0, "lost_percent": 0.1, "largest_gap_ms": 0.2}] * 2,
        "machine": {"usable_cores": 2, "processor": "x86_64", "load_before_and_after": [0.1, 0.2]},
        "versions": {"python": "3.14.0", "kafka-python": "3.0.12", "openssl": "OpenSSL 3"},
        "date": "2026-11-22",
    }


def meets(result):
    from tunnel_parts.bars import bars  # noqa: PLC0415 - bench is no package of ours

    return [(each["bar"], each["met"], each["note"]) for each in bars(result)]


@pytest.mark.parametrize("size", [150, *SIZES])
def test_a_feature_is_json_of_its_size(size):
    from tunnel_parts.payload import feature  # noqa: PLC0415 - same

    made = feature(random.Random(1), size)
    assert len(made) == size
    assert len(json.loads(made)["pad"]) < 120
    assert made == feature(random.Random(1), size)
    assert made != feature(random.Random(2), size)


def test_a_frame_is_one_of_ours():
    from tunnel_parts.payload import frame  # noqa: PLC0415 - same

    envelope = decode_uplink(frame(7, 20, [b"{}", b"[]"]))
    assert envelope.number == 7
    assert [each.sequence_number for each in decode_body(envelope.body)] == [20, 21]


def test_every_size_link_and_way_of_the_bars_has_one(result):
    found = meets(result)
    assert [bar for bar, _, _ in found] == [
        *["< 30"] * 3,
        *["< 100"] * 3,
        *["< 100"] * 3,
        *["< 150"] * 3,
    ]
    assert all(is_met for _, is_met, _ in found)


def test_a_bar_is_missed_by_its_own_row_alone(result):
    from tunnel_parts.bars import find_row  # noqa: PLC0415 - same

    find_row(result["warm"], "down", "ours", "TLS", "50 ms", 3_000)["received_ms"]["p99"] = 100.0
    assert [is_met for _, is_met, _ in meets(result)].count(False) == 1
    find_row(result["warm"], "up", "bare", "TLS", "loopback", 3_000)["acked_ms"]["p99"] = 1e4
    assert [is_met for _, is_met, _ in meets(result)].count(False) == 1


@pytest.mark.parametrize(("key", "words"), [("quick", "quick look"), ("trial", "busy machine")])
def test_bars_are_met_by_a_whole_run_on_a_quiet_machine_alone(result, key, words):
    found = meets(result | {key: True})
    assert not any(is_met for _, is_met, _ in found)
    assert all(words in note for _, _, note in found)


def test_without_tls_there_is_no_bar(result):
    assert meets(result | {"listeners": ["plain"]}) == []


def test_the_report_shows_tables_figure_and_paper(result, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - same
    from tunnel_parts.bars import bars  # noqa: PLC0415 - same

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "tunnel.json").write_text(json.dumps(result | {"bars": bars(result)}))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "## The tunnel over Apache Kafka" in text
    assert "| 3 KB | under 250 ms on average | 5.0, 20.0 | 5.0, 20.0 | 5.0, 20.0 |" in text
    assert "4.0 (4.0, 1.00)" in text
    figure = (tmp_path / "tunnel.svg").read_text()
    assert figure.startswith("<svg")
    assert figure.count("<polyline") == 3 * 2 * 2
    assert figure.count('r="5"') == 3  # two of the paper, one of the legend


def test_a_result_of_one_part_has_its_tables_alone(result):
    from tunnel_parts.tables import tables  # noqa: PLC0415 - same

    some = {name: value for name, value in result.items() if name not in {"warm", "cold"}}
    titles = [each.title for each in tables(some | {"bars": []})]
    assert len(titles) == 3
    assert "Throughput" in titles[0]


def test_over_a_link_every_address_is_the_links(monkeypatch):
    from tunnel_parts.network import LinkedModel, LinkSocket  # noqa: PLC0415 - same

    model = LinkedModel(brokers="127.0.0.1:4321", topic="t")
    options = model.client_options()
    assert options["bootstrap_servers"] == ["127.0.0.1:4321"]
    found = LinkSocket(options["proxy_url"]).dns_lookup("elsewhere", 9092)
    assert {each[-1] for each in found} == {("127.0.0.1", 4321)}
