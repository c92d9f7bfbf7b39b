"""The peers' benchmark: each contender does the oracle's job, and missing ones are reported."""

import importlib.util
import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import msgspec
import pytest

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _bench_path():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield


@pytest.fixture(scope="module")
def lines():
    model = SimulatorModel(
        devices=40, sessions=3, late_events=0.1, missing_exits=0.1, duplicates=0.1, payload_bytes=0
    )
    timeline = Timeline(model)
    return [line.data for window in range(timeline.windows) for line in timeline.lines(window)]


@pytest.fixture(scope="module")
def expected(lines):
    path = ROOT / "tests/integration/naive_shop.py"
    spec = importlib.util.spec_from_file_location("naive_shop", path)
    naive_shop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(naive_shop)
    return naive_shop.recompute(lines, 16)


def test_the_plain_loop_makes_the_features_of_the_oracle(lines, expected, tmp_path):
    from peers_parts.plain import run  # noqa: PLC0415 - bench is no package of ours

    (tmp_path / "in").write_bytes(b"\n".join(lines) + b"\n")
    run(tmp_path / "in", tmp_path / "out")
    found = {}
    for line in (tmp_path / "out").read_bytes().splitlines():
        made = msgspec.json.decode(line)
        assert len(b64decode(made["encoding"])) == 128
        found.setdefault(made["feature"]["device_id"], []).append(made["feature"])
    assert found == expected
    assert {each["cause"] for views in found.values() for each in views} == {"exit", "timeout"}


def test_a_visitor_survives_being_stored_after_every_event(lines, expected):
    from peers_parts import shop_job  # noqa: PLC0415 - same
    from peers_parts.shop_features import Views  # noqa: PLC0415 - same

    watermarks, stored, views, found = shop_job.Watermarks(), {}, {}, {}

    def take(device_id, pages):
        for line in views[device_id].lines(pages):
            found.setdefault(device_id, []).append(msgspec.json.decode(line)["feature"])

    for event in map(shop_job.decode_event, lines):
        data = stored.get(event.device_id)
        views.setdefault(event.device_id, Views(event.device_id))
        visitor = (
            shop_job.Visitor.restore(msgspec.json.decode(data)) if data else shop_job.Visitor()
        )
        take(event.device_id, visitor.accept(event, watermarks.of(event)))
        stored[event.device_id] = msgspec.json.encode(visitor.export())
    for device_id, data in stored.items():
        take(device_id, shop_job.Visitor.restore(msgspec.json.decode(data)).finish())
    assert found == expected


def test_equal_multisets_have_equal_digests():
    from peers_parts.running import canonical, digest_of  # noqa: PLC0415 - same

    one, two = canonical({"a": 1, "b": 2}, b"x"), canonical({"b": 2, "a": 1}, b"x")
    assert one == two
    assert digest_of([one, b"3"]) == digest_of([b"3", two])
    assert digest_of([one, one]) != digest_of([one])
    assert digest_of([b"ab", b"c"]) != digest_of([b"a", b"bc"])


def test_a_peer_that_cannot_be_installed_is_missing_with_what_was_tried(tmp_path):
    from peers_parts.contenders import CONTENDERS  # noqa: PLC0415 - same
    from peers_parts.environments import Missing, find_environment  # noqa: PLC0415 - same

    peer = next(each for each in CONTENDERS if each.name == "bytewax")._replace(pythons=("3.1",))
    found = find_environment(peer, tmp_path, may_install=True)
    assert found == Missing(
        f"{peer.requirement} cannot be installed (Python 3.1: no such Python here)"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, str(ROOT / "bench/peers.py"), "--quick", "--installed", "--trial"]
    command += ["--environments", str(folder / "none"), "--json", str(folder / "peers.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "peers.json").read_text()), done


def test_those_that_are_there_are_measured(measured):
    result, done = measured
    walle, plain = result["contenders"]
    assert (walle["name"], plain["name"]) == ("walle", "plain")
    for each in (walle, plain):
        assert each["events_per_cpu_second"]["median"] > 0
        assert each["peak_rss_mib"] > 0
        assert len(each["rounds"]) == 1
    assert set(plain["walle_ratio"]) == {"q1", "median", "q3"}
    assert result["features"] > 100
    assert "the same as the oracle's" in done.stderr


def test_those_that_are_not_are_named_with_the_reason(measured):
    result, done = measured
    titles = [each["title"] for each in result["missing"]]
    assert titles == ["Bytewax", "Bytewax, recovery", "Quix Streams", "Faust"]
    assert all("is not installed" in each["reason"] for each in result["missing"])
    assert "did not take part" in done.stdout


def test_the_report_shows_the_table_and_the_figure(measured, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - same

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "peers.json").write_text(json.dumps(measured[0]))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "| walle run |" in text
    assert "A TRIAL" in text
    assert "did not take part" in text
    assert (tmp_path / "peers.svg").read_text().count("<rect") == 3


@pytest.fixture(scope="module")
def shop(lines, tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "shop.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_markers_end_every_page_without_an_end_of_the_input(shop, lines, expected):
    pytest.importorskip("kafka", reason="the extra `kafka` is missing")
    from peers_parts.kafka_topics import raw_records  # noqa: PLC0415 - same
    from peers_parts.shop_features import Views  # noqa: PLC0415 - same
    from peers_parts.shop_job import Visitor, Watermarks, decode_event  # noqa: PLC0415 - same

    records = list(raw_records(shop))
    assert [each.line for each in records[: len(lines)]] == lines
    visitors, views, found, watermarks = {}, {}, {}, Watermarks()
    for event in (decode_event(each.line) for each in records):
        device_id = event.device_id
        pages = visitors.setdefault(device_id, Visitor()).accept(event, watermarks.of(event))
        for line in views.setdefault(device_id, Views(device_id)).lines(pages):
            found.setdefault(device_id, []).append(msgspec.json.decode(line)["feature"])
    assert found == expected


def test_an_exit_is_what_makes_its_feature_where_nothing_is_put_in_order(shop, lines):
    pytest.importorskip("kafka", reason="the extra `kafka` is missing")
    from peers_parts.kafka_latency import exits_of  # noqa: PLC0415 - same
    from peers_parts.kafka_topics import raw_records  # noqa: PLC0415 - same
    from peers_parts.shop_job import Visitor, decode_event  # noqa: PLC0415 - same

    found = exits_of(list(raw_records(shop, has_markers=False)))
    assert len(found) > 100
    for (device_id, instance), number in found.items():
        event = decode_event(lines[number])
        assert (event.device_id, event.page_instance) == (device_id, instance)
        assert event.kind == "page_exit"
    assert Visitor.order_ms == 2_000


def test_ours_are_held_against_the_best_peer_of_their_kind():
    from peers_parts.kafka_tables import bars  # noqa: PLC0415 - same

    def peer(name, driver, confluent, python, *, keeps_state=True, minor="3.14", speed=1.0):
        ratios = {"walle-confluent": {"median": confluent}, "walle": {"median": python}}
        found = {"name": name, "title": name, "driver": driver, "keeps_state": keeps_state}
        found |= {"python": f"{minor}.1", "events_per_cpu_second": {"median": speed}}
        alone = {"walle": {"median": 2 * python}, "walle-confluent": {}}
        return {**found, "ratios": ratios, "ratios_without_start": alone}

    peers = [
        peer("plain", "kafka-python", 0.1, 0.1, keeps_state=False),
        peer("plain-confluent", "librdkafka", 0.1, 0.1, keeps_state=False, speed=80.0),
        peer("plain-confluent-3.12", "librdkafka", 0.1, 0.1, keeps_state=False, speed=60.0),
        peer("light", "librdkafka", 0.8, 0.4, keeps_state=False, minor="3.12"),
        peer("fast", "librdkafka", 1.6, 1.2),
        peer("slow", "librdkafka", 3.0, 2.0),
        peer("python", "aiokafka", 4.0, 3.0),
    ]
    assert [tuple(each.values()) for each in bars(peers)] == [
        ("walle-confluent / fast", 1.6, None, None, True),
        ("walle-confluent / light, which keeps nothing", 0.8, None, 0.6, False),
        ("walle / python", 3.0, 6.0, None, True),
        ("walle / fast", 1.2, 2.4, None, False),
    ]


def test_the_plain_loop_runs_on_each_python_that_a_peer_needs():
    from peers_parts.contenders import Contender  # noqa: PLC0415 - same
    from peers_parts.contest import add_other_pythons  # noqa: PLC0415 - same
    from peers_parts.environments import Environment  # noqa: PLC0415 - same

    def one(name, driver, version):
        return Contender(name, name, driver=driver), Environment(Path(name), version, "1")

    ready = {
        "plain": one("plain", "a", "3.14.1"),
        "same": one("same", "a", "3.14.2"),
        "older": one("older", "a", "3.12.1"),
        "older, too": one("older, too", "a", "3.12.1"),
        "without the driver": one("without the driver", "b", "3.11.1"),
    }
    add_other_pythons(ready, "plain")
    assert list(ready)[5:] == ["plain-3.12"]
    assert ready["plain-3.12"] == (
        Contender("plain-3.12", "plain, 3.12", driver="a"),
        Environment(Path("older"), "3.12.1", ""),
    )
