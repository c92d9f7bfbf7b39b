"""Any model, broken in any way: results or an error of the engine, and nothing else."""

import pytest

from walle_stream.testing.onnx.fuzz import Report, fuzz

MODELS, MANY_MODELS = 2_000, 20_000


@pytest.mark.parametrize(
    ("seed", "count"),
    [("suite", MODELS), pytest.param("long", MANY_MODELS, marks=pytest.mark.slow)],
)
def test_no_broken_model_raises_crashes_hangs_or_prints(onnx_cases, seed, count):
    report = Report(seed)
    fuzz(onnx_cases, report, count)
    assert report.findings == {}
    assert sum(report.outcomes.values()) == count
    assert report.outcomes["ran"] > count // 8
    assert report.outcomes["refused: ShapeError"] > count // 20
