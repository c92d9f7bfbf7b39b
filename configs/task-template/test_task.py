"""Test of the task over its sample; run it with walle task test."""

from pathlib import Path

from walle_stream.testing.kit import run_pipeline


def test_every_finished_visit_gives_a_feature(tmp_path):
    features = run_pipeline(Path(__file__).with_name("pipeline.yaml"), tmp_path / "data")
    assert [f["feature"] for f in features if f["device_id"] == "phone-1"] == [
        {"page": "product", "dwell_ms": 4000, "clicks": 1, "visit": 1},
        {"page": "product", "dwell_ms": 3000, "clicks": 2, "visit": 2},
    ]
