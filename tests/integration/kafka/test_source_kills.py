"""A run that dies at any point goes on exactly behind what it committed."""

import os
import subprocess
import sys

import pytest

from tests.integration.kafka.test_source_pipeline import (  # noqa: F401 - `shop` is a fixture
    definition,
    features,
    shop,
    source_of,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("is_grouped", [False, True])
def test_kills_at_crash_points_change_nothing(address, shop, tmp_path, is_grouped, group_driver):  # noqa: F811
    name, expected = shop
    group = {"group": f"{name}-{group_driver}", "sessionTimeout": "6s"} if is_grouped else {}
    keys = {"driver": group_driver, **group}
    path = definition(tmp_path, source_of(address, name, **keys))
    points = ("read.batch:1", "read.batch:9", "commit.before:4", "commit.after:6", "send.after:3")
    options = ["--set", "spec.runtime.partitions=4", "--set", "spec.runtime.batchEvents=50"]
    options += ["--data-dir", tmp_path / "d"]
    killed = 0
    for point in points:
        done = subprocess.run(
            [sys.executable, "-m", "walle_stream.cli", "run", path, *options],
            env={**os.environ, "WALLE_CRASH": point},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode in {0, -9}, done.stderr
        killed += done.returncode == -9
    assert killed >= 3
    assert features(path, tmp_path / "d", "spec.runtime.partitions=4") == expected
