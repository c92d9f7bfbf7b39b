"""Fifty times kill -9, half of them at named crash points; ``make chaos`` does 500."""

import gzip
from pathlib import Path

import pytest

from walle_stream.testing.chaos import Chaos, ChaosPlan, render

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]


def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path):
    rows = gzip.decompress((ROOT / "configs/samples/kuairand_feed.csv.gz").read_bytes())
    feed = tmp_path / "feed.csv"
    feed.write_bytes(b"\n".join(rows.splitlines()[:4_001]) + b"\n")
    plan = ChaosPlan(
        pipeline=str(ROOT / "configs/ipv.yaml"),
        overrides=(
            f"spec.source.path={feed}",
            "spec.runtime.partitions=4",
            "spec.runtime.batchEvents=20",
        ),
        kills=50,
        seed=11,
    )
    report = Chaos(plan, tmp_path).run()
    assert report.kills == 50
    assert not report.mismatches, render(report)
