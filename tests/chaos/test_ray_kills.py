"""kill -9 of host processes and of drivers under --runtime ray.

Not marked ``chaos``: starting Ray takes long, so one Python does. ``make chaos``
kills 150 times.
"""

import gzip
from importlib.util import find_spec
from pathlib import Path

import pytest

from walle_stream.testing.chaos import Campaign, ChaosPlan, PartPlan, render

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

ROOT = Path(__file__).resolve().parents[2]
KILLS = {"host": 11, "driver": 2}


def test_kills_in_one_cluster_change_no_byte(tmp_path):
    rows = gzip.decompress((ROOT / "configs/samples/kuairand_feed.csv.gz").read_bytes())
    feed = tmp_path / "feed.csv"
    feed.write_bytes(b"\n".join(rows.splitlines()[:4_001]) + b"\n")
    plan = ChaosPlan(
        pipeline=str(ROOT / "configs/ipv.yaml"),
        overrides=(
            f"spec.source.path={feed}",
            "spec.runtime.partitions=4",
            "spec.state.journalEvents=100",
            "spec.runtime.activeDevices=30",
        ),
        parts=(PartPlan("ray", sum(KILLS.values()), KILLS),),
        seed=7,
    )
    report = Campaign(plan, tmp_path / "c").run()
    assert not report.mismatches, render(report)
    [part] = report.parts
    assert part.by_role == KILLS
    print(render(report))
