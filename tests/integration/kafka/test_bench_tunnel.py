"""The tunnel's benchmark from end to end, over a real broker: few records, no figure is looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from walle_stream.errors import BrokerMissingError

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[3]
FEW = ["--quick", "--samples", "2", "--cold", "1", "--records", "100"]


@pytest.fixture
def environment(broker):
    """Of the listener that asks for no certificate, so that no rights are to be given."""
    try:
        files = broker.files("bench")
        given = {"": broker.address("tls"), "_CA": files.ca, "_CERT": files.cert, "_KEY": files.key}
    except BrokerMissingError:
        given = {"": broker.address(), "_CA": "", "_CERT": "", "_KEY": ""}
    return os.environ | {f"WALLE_KAFKA{name}": str(value) for name, value in given.items()}


def test_all_parts_leave_their_figures(environment, tmp_path):
    command = [sys.executable, str(ROOT / "bench/tunnel.py"), *FEW]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "tunnel.json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "tunnel.json").read_text())
    (transport,) = result["listeners"]
    assert len(result["warm"]) == 3 * 2 * 2 * 6  # links, ways, ours and bare, sizes
    states = {(each["who"], each["state"]) for each in result["cold"]}
    assert {("ours", "cold"), ("bare", "cold")} <= states
    assert {each["codec"] for each in result["throughput"]} == {"none", "lz4", "zstd"}
    assert [each["linger_ms"] for each in result["linger"]] == [0, 2, 5, 20]
    if transport == "TLS":
        assert ("ours", "resumed") in states
        for each in result["handshake"]:
            assert each["reused"] == (each["samples"] if each["state"] == "resumed" else 0)
        for each in result["cold"]:
            if each["state"] == "resumed":
                assert (each["full"], each["resumed"] > 0) == (0, True)
        assert len(result["bars"]) == 12
        assert not any(each["met"] for each in result["bars"])  # a quick look
