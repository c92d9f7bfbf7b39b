"""What importing the engine costs, and on which Pythons it can be read."""

import ast
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "walle_stream/engine"
OLDEST = (3, 12)
HEAVY = {"cupy", "ml_dtypes", "msgspec", "numpy", "onnx", "PIL", "pydantic", "rich", "yaml"}


def loaded_by(statement, python=sys.executable):
    done = subprocess.run(
        [python, "-c", f"import sys; {statement}; print(*sys.modules)"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def reached(path):
    """Names of our modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(name), names=names):
                yield from (name, *(f"{name}.{each.name}" for each in names))
            case ast.Import(names=names):
                yield from (each.name for each in names)


@cache
def files_of_the_engine():
    """The engine's, and all of ours that they import, and so on."""
    found, waiting = set(), [ROOT / "walle_stream/__init__.py", *ENGINE.rglob("*.py")]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in reached(path):
            place = ROOT.joinpath(*name.split("."))
            near = (place.with_suffix(".py"), place / "__init__.py", place.parent / "__init__.py")
            waiting += [each for each in near if name.startswith("walle_stream") and each.exists()]
    return sorted(found)


def runs(python, code):
    return not subprocess.run([python, "-c", code], capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def oldest_pythons():
    version = f"{OLDEST[0]}.{OLDEST[1]}"
    places = [
        ROOT / ".venv-oldest/bin/python",  # with numpy and onnx, see .ci/python.sh
        shutil.which(f"python{version}"),
        *Path.home().glob(f".pyenv/versions/{version}*/bin/python"),
    ]
    known = f"import sys; sys.exit(sys.version_info[:2] != {OLDEST})"
    found = [each for each in places if each and Path(each).exists() and runs(each, known)]
    if not found:
        pytest.skip(f"Python {version} is not here")
    return found


@pytest.fixture
def oldest_python(oldest_pythons):
    return oldest_pythons[0]


@pytest.fixture
def oldest_with_onnx(oldest_pythons):
    for each in oldest_pythons:
        if runs(each, "import numpy, onnx, ml_dtypes"):
            return each
    pytest.skip("no Python 3.12 with numpy and onnx: .ci/python.sh oldest .venv-oldest makes one")


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
    assert len(files_of_the_engine()) > 50
    for path in files_of_the_engine():
        ast.parse(path.read_text(), feature_version=OLDEST)


def test_what_the_engine_imports_is_among_them():
    names = {path.relative_to(ROOT).as_posix() for path in files_of_the_engine()}
    assert {"walle_stream/errors/engine.py", "walle_stream/wire/graph.py"} <= names
    assert not [each for each in names if each.startswith("walle_stream/app/")]


def test_the_oldest_python_compiles_it(oldest_python):
    code = "import sys\nfor path in sys.argv[1:]: compile(open(path).read(), path, 'exec')"
    command = [oldest_python, "-c", code, *map(str, files_of_the_engine())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_oldest_python_imports_it(oldest_python):
    assert not loaded_by("import walle_stream.engine", oldest_python) & HEAVY


def test_the_oldest_python_imports_every_module(oldest_with_onnx):
    names = [
        ".".join(each.relative_to(ROOT).with_suffix("").parts)
        for each in ENGINE.rglob("*.py")
        if each.name != "__init__.py"
    ]
    assert len(names) > 50
    code = f"import importlib; [importlib.import_module(each) for each in {names}]"
    assert not loaded_by(code, oldest_with_onnx) & (HEAVY - {"numpy", "onnx", "ml_dtypes"})


MODEL = """
<ir_version: 8, opset_import: ["": 17]>
twice (float[n, 2] x, bool which) => (float[n, 2] y) {
  y = If (which) <
    then_branch = sum () => (float[n, 2] d) { d = Add(x, x) },
    else_branch = product () => (float[n, 2] s) { t = Transpose(x) s = MatMul(x, t) }
  >
}
"""
RUN = f"""
import numpy, onnx
from walle_stream.engine import load_bytes
made = load_bytes(onnx.parser.parse_model({MODEL!r}).SerializeToString())
x = numpy.arange(4, dtype=numpy.float32).reshape(2, 2)
for which, wanted in ((True, x + x), (False, x @ x.T)):
    (y,) = made.run({{"x": x, "which": numpy.array(which)}}).values()
    assert (y == wanted).all(), y
"""


def test_the_oldest_python_runs_a_model(oldest_with_onnx):
    done = subprocess.run(
        [oldest_with_onnx, "-c", RUN],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
