"""The bars of ONNX's own cases, counted where no other evaluator can be loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from walle_stream.testing.onnx.conformance import BARS


@pytest.mark.parametrize(("backend", "options"), [("reference", []), ("checked", ["--raw"])])
def test_as_many_cases_pass_as_the_bars_ask_for(backend, options, onnx_cases, tmp_path):
    counted = tmp_path / "counts.json"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.conformance"]
    command += ["--backend", backend, "--cases", str(onnx_cases), "--json", str(counted), *options]
    # rounding decides between the equal outputs of SqueezeNet's case, whose weights are all alike, and
    # OpenBLAS takes a processor that it does not know for one without AVX-512
    environ = dict(os.environ)
    if " avx512f " in Path("/proc/cpuinfo").read_text():
        environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    subsets = json.loads(counted.read_text())["subsets"]
    assert {name: each["total"] for name, each in subsets.items() if name in BARS} == {
        name: total for name, (_, total) in BARS.items()
    }
