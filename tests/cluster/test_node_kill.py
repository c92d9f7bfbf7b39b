"""A node of three dies under a live feed; ``make chaos-cluster``: 100 faults of many kinds."""

import pytest

from tests.cluster.chaos.life import live
from tests.cluster.chaos.plan import LifePlan
from tests.cluster.engine import why_missing
from tests.s3 import find_server


@pytest.mark.parametrize(
    "faults", [("node",), pytest.param(("node", "supervisor"), marks=pytest.mark.full)]
)
def test_features_are_equal_after_the_kill_of_a_node(tmp_path, faults):
    reason = why_missing()
    if reason or (program := find_server()) is None:
        pytest.skip(reason or "no S3 server (versitygw, or go to build it) on this machine")
    end = live(tmp_path / "kit", program, LifePlan(1, 1, faults), seed=1)
    assert not end.differing
    assert end.features > 0
    assert [each.fault for each in end.suffered] == [*faults]
