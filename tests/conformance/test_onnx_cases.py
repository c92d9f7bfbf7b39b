"""The bars of ONNX's own cases, counted where no other evaluator can be loaded."""

import json
import subprocess
import sys

import pytest

from walle_stream.testing.onnx.conformance import BARS


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "cases.zip"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.cases", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_as_many_cases_pass_as_the_bars_ask_for(backend, cases, tmp_path):
    counted = tmp_path / "counts.json"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.conformance"]
    command += ["--backend", backend, "--cases", str(cases), "--json", str(counted)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    subsets = json.loads(counted.read_text())["subsets"]
    assert {name: each["total"] for name, each in subsets.items() if name in BARS} == {
        name: total for name, (_, total) in BARS.items()
    }
