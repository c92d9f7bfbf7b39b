"""Any model, broken in any way: results or an error of the engine, and nothing else."""

import subprocess
import sys

import pytest

from walle_stream.testing.onnx.fuzz import Report, fuzz

MODELS, MANY_MODELS = 2_000, 20_000


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "cases.zip"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.cases", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize(
    ("seed", "count"),
    [("suite", MODELS), pytest.param("long", MANY_MODELS, marks=pytest.mark.slow)],
)
def test_no_broken_model_raises_crashes_hangs_or_prints(cases, seed, count):
    report = Report(seed)
    fuzz(cases, report, count)
    assert report.findings == {}
    assert sum(report.outcomes.values()) == count
    assert report.outcomes["ran"] > count // 8
    assert report.outcomes["refused: ShapeError"] > count // 20
