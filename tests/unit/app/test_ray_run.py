"""What the runtime ray refuses before it looks for Ray."""

import pytest

from walle_stream.app.assembly import Assembly
from walle_stream.app.options import RunOptions
from walle_stream.app.ray_run import RayRun
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import SpecFileError


def test_a_pipeline_over_kafka_is_refused_and_leaves_nothing(tmp_path):
    assembly = Assembly.load(shipped_configs() / "ipv-kafka.yaml")
    with pytest.raises(SpecFileError, match="run it with --runtime local"):
        RayRun(assembly, RunOptions(tmp_path / "d", hosts=2)).run()
    assert not (tmp_path / "d").exists()
