"""What importing the engine costs, and on which Pythons it can be read."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "walle_stream/engine"
FILES = sorted(ENGINE.rglob("*.py"))
OLDEST = (3, 12)
HEAVY = {"cupy", "ml_dtypes", "msgspec", "numpy", "onnx", "PIL", "pydantic", "rich", "yaml"}


def loaded_by(statement, python=sys.executable):
    done = subprocess.run(
        [python, "-c", f"import sys; {statement}; print(*sys.modules)"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.fixture(scope="module")
def oldest_python():
    version = f"python{OLDEST[0]}.{OLDEST[1]}"
    places = [
        shutil.which(version),
        *Path.home().glob(f".pyenv/versions/3.{OLDEST[1]}*/bin/python"),
    ]
    for place in filter(None, places):
        done = subprocess.run([place, "-c", "pass"], capture_output=True, check=False)
        if not done.returncode:
            return place
    pytest.skip(f"{version} is not here")


@pytest.mark.parametrize("name", ["walle_stream", "walle_stream.engine"])
def test_importing_is_light(name):
    assert not loaded_by(f"import {name}") & HEAVY


def test_what_is_asked_for_is_imported_then():
    loaded = loaded_by("from walle_stream.engine import load")
    assert "numpy" in loaded
    assert not loaded & {"onnx", "ml_dtypes", "cupy", "PIL"}


def test_everything_that_it_has_is_listed():
    code = (
        "import walle_stream.engine as e; assert set(e.__all__) <= set(dir(e)); e.Session; e.Module"
    )
    loaded_by(code)


def test_what_it_has_not_is_an_attribute_error():
    code = "import walle_stream.engine as e; assert not hasattr(e, 'away')"
    assert "numpy" not in loaded_by(code)


def test_every_module_is_of_the_oldest_python():
    assert len(FILES) > 50
    for path in FILES:
        ast.parse(path.read_text(), feature_version=OLDEST)


def test_the_oldest_python_compiles_it(oldest_python):
    code = "import sys\nfor path in sys.argv[1:]: compile(open(path).read(), path, 'exec')"
    command = [oldest_python, "-c", code, *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_oldest_python_imports_it(oldest_python):
    assert not loaded_by("import walle_stream.engine", oldest_python) & HEAVY
    has = subprocess.run([oldest_python, "-c", "import numpy"], capture_output=True, check=False)
    if has.returncode:
        pytest.skip("that Python has no numpy: imported as far as that goes")
    loaded_by("from walle_stream.engine import load, Module, Session", oldest_python)
