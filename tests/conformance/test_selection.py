"""Which tests run: none is left out of its target, and in CI none for want of an extra."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTHING_COLLECTED = 5

LACKING = """
from importlib.util import find_spec
import pytest

@pytest.mark.skipif(find_spec("no_such_module") is None, reason="the extra `cloud` is not installed")
def test_marked():
    pass

def test_asking():
    pytest.importorskip("no_such_module")

@pytest.mark.parametrize("driver", [pytest.param("x", marks=pytest.mark.skipif(True, reason="the extra `confluent` is missing"))])
def test_driver(driver):
    pass

@pytest.mark.skipif(True, reason="only on another system")
def test_elsewhere():
    pass
"""


def run_pytest(*arguments, **environ):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_kafka_runs_all_tests_of_its_folder():
    done = run_pytest("--collect-only", "-m", "not kafka", "tests/integration/kafka")
    assert done.returncode == NOTHING_COLLECTED, done.stdout


@pytest.mark.parametrize(
    ("ci", "said", "of_the_module"),
    [("true", "1 failed, 1 skipped, 2 errors", "1 error"), ("", "4 skipped", "1 skipped")],
)
def test_ci_leaves_no_test_out_for_want_of_an_extra(tmp_path, ci, said, of_the_module):
    (tmp_path / "test_lacking.py").write_text(LACKING)
    (tmp_path / "test_whole.py").write_text(
        'import pytest\npytest.importorskip("no_such_module", reason="the extra `x` is missing")\n'
    )
    given = ("-c", os.devnull, "--rootdir", tmp_path, "-p", "tests.conftest")
    done = run_pytest(*given, tmp_path / "test_lacking.py", CI=ci)
    assert said in done.stdout
    assert bool(done.returncode) is bool(ci)
    # a module that asks as it is imported
    done = run_pytest(*given, tmp_path / "test_whole.py", CI=ci)
    assert of_the_module in done.stdout
    assert (done.returncode in {0, NOTHING_COLLECTED}) is not bool(ci)
