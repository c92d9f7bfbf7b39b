"""The tunnel's benchmark over a real broker: few records, no figure is looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[3]
CLIENT = "bench"


@pytest.fixture(autouse=True)
def _bench_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.fixture
def files(broker):
    """Of a client that may do everything, over mutual TLS."""
    from tunnel_parts.network import allow_everything

    allow_everything(broker.options(), CLIENT)
    return broker.files(CLIENT)


@pytest.fixture
def reach(broker, files):
    from tunnel_parts.network import Reach

    tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
    return Reach(broker.address("mutual"), tls, "loopback")


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("link", ["loopback", "50 ms"])
def test_every_record_comes_back_as_it_was_sent(reach, way, link, monkeypatch):
    from tunnel_parts import warm

    monkeypatch.setattr(warm, "_WARM_UP", 1)
    rows = warm.measure_warm(reach._replace(link=link), way, ["ours", "bare"], [300, 30_000], 2, 1)
    assert [(each["who"], each["size"]) for each in rows] == [
        ("bare", 300),
        ("bare", 30_000),
        ("ours", 300),
        ("ours", 30_000),
    ]
    assert {each["received_ms"]["count"] for each in rows} == {2}
    if link != "loopback" and way == "up":
        # nothing is quicker than the link: there, and there and back
        assert min(each["received_ms"]["max"] for each in rows) > 25.0
        assert min(each["acked_ms"]["max"] for each in rows) > 50.0


@pytest.mark.parametrize("way", ["up", "down"])
def test_who_is_cold_has_no_session_and_who_resumes_needs_no_whole_handshake(reach, way):
    from tunnel_parts.cold import measure_cold

    found = {(each["who"], each["state"]): each for each in measure_cold(reach, way, [3_000], 1, 1)}
    assert found["ours", "cold"]["full"] == 1
    assert found["ours", "resumed"]["full"] == 0
    assert found["ours", "resumed"]["resumed"] > 0
    assert found["bare", "cold"]["full"] == found["bare", "cold"]["resumed"] == 0


def test_handshakes_are_whole_and_resumed_in_turn(reach):
    from tunnel_parts.cold import measure_handshake

    found = {each["state"]: each["reused"] for each in measure_handshake(reach, 3)}
    assert found == {"whole": 0, "resumed": 3}


def test_what_is_compressed_takes_fewer_bytes_in_the_broker(reach):
    from tunnel_parts.throughput import measure_linger, measure_throughput

    stored = {
        codec: [
            each["bytes_per_record"]
            for each in measure_throughput(reach._replace(codec=codec), [50], 100, 1)
        ]
        for codec in ("none", "zstd")
    }
    assert min(stored["none"]) > 1_300
    assert max(stored["zstd"]) < 650
    assert measure_linger(reach._replace(linger_ms=2), 50, 5, 1)["linger_ms"] == 2


@pytest.mark.slow
def test_the_command_leaves_all_its_figures(broker, files, tmp_path):
    given = {"": broker.address("mutual")}
    given |= {"_CA": files.ca, "_CERT": files.cert, "_KEY": files.key}
    few = ["--quick", "--samples", "2", "--cold", "1", "--records", "100"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/tunnel.py"), *few, "--json", tmp_path / "tunnel.json"],
        env=os.environ | {f"WALLE_KAFKA{name}": str(value) for name, value in given.items()},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "tunnel.json").read_text())
    assert result["listeners"] == ["TLS"]
    assert len(result["warm"]) == 3 * 2 * 2 * 6  # links, ways, ours and bare, sizes
    assert {each["codec"] for each in result["throughput"]} == {"none", "lz4", "zstd"}
    assert [each["linger_ms"] for each in result["linger"]] == [0, 2, 5, 20]
    assert len(result["bars"]) == 12
    assert not any(each["met"] for each in result["bars"])  # a quick look
