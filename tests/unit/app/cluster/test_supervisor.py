"""A run is refused where the cluster has other versions, and nothing of it begins there."""

import logging
from pathlib import Path

import pytest

from walle_stream.app.cluster.supervisor import Supervisor
from walle_stream.app.options import RunOptions
from walle_stream.errors import ClusterError

pytest.importorskip("ray")


def test_a_supervisor_of_another_version_begins_nothing():
    asker = {"walle_stream": "0.0.9"}
    made = Supervisor(RunOptions(Path("d"), 1), logging.INFO, asker, b"of 0.0.9, and never read")
    for ask in (made.hello, made.told, made.observe, made.wait):
        with pytest.raises(ClusterError, match=r", this process has walle_stream 0\.0\.9: "):
            ask()
