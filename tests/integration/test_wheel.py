"""The wheel in an empty environment, beside folders that have our folders' names."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import walle_stream

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"walle_stream", "walle_connectors", "walle_deploy"}


def run(*command, **options):
    # nothing of this process's environment may help the wheel
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    command = [str(part) for part in command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environ, **options
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin_folder(wheel, tmp_path_factory):
    """The commands of an environment that holds the wheel and what it asks for."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    # its own pip, and bytecode of all that nobody imports, would take most of the time
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q"]
    pip += ["--disable-pip-version-check", "--no-compile", "-c", ROOT / "requirements.lock"]
    run(*pip, wheel)
    return venv / "bin"


@pytest.fixture
def folder(tmp_path):
    """A user's folder whose own packages are named like our folders."""
    for name in ("deploy", "connectors", "configs"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"raise ImportError('the user has a {name}, too')\n")
        (package / "files.py").write_text("raise ImportError('not ours')\n")
    return tmp_path


def test_the_wheel_holds_the_packages_and_the_examples_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == PACKAGES | {f"walle_stream-{walle_stream.__version__}.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert {"walle_stream/configs/ipv.yaml", "walle_stream/configs/otto.yaml"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", "~"))]


def test_every_module_of_the_tree_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = (ROOT / "walle_stream", ROOT / "connectors", ROOT / "deploy")
    roots = (ROOT, ROOT / "connectors", ROOT / "deploy")
    for folder, root in zip(folders, roots, strict=True):
        wanted = {path.relative_to(root).as_posix() for path in folder.rglob("*.py")}
        assert wanted - names == set()


def test_the_command_of_the_wheel_says_its_version(bin_folder, folder):
    shown = run(bin_folder / "walle", "--version", cwd=folder)
    assert shown.strip() == f"walle {walle_stream.__version__}"


@pytest.mark.parametrize("name", ["ipv", "otto"])
def test_a_shipped_pipeline_runs_beside_folders_of_our_names(bin_folder, folder, name):
    command = [bin_folder / "walle", "run", name, "--data-dir", folder / "D", "--json"]
    report = json.loads(run(*command, cwd=folder).splitlines()[-1])
    assert report["features"] > 0
    assert report["cloud"]["features"] == report["features"]


def test_the_wheel_runs_as_a_module_from_there_too(bin_folder, folder):
    # `-m` puts the user's folder first on the path
    command = [bin_folder / "python", "-m", "walle_stream.cli", "run", "ipv"]
    command += ["--limit", "500", "--data-dir", folder / "D", "--json"]
    report = json.loads(run(*command, cwd=folder).splitlines()[-1])
    assert report["source_rows"] == 500


def test_a_new_pipeline_is_made_and_runs_from_the_wheel(bin_folder, folder):
    run(bin_folder / "walle", "init", "visits", cwd=folder)
    command = [bin_folder / "walle", "run", "visits/pipeline.yaml", "--json"]
    report = json.loads(run(*command, cwd=folder).splitlines()[-1])
    assert report["features"] > 0


def test_the_installed_packages_are_those_of_the_wheel(bin_folder, folder):
    code = "import walle_stream, walle_connectors, walle_deploy as d; print(walle_stream.__file__, d.__file__)"
    shown = run(bin_folder / "python", "-c", code, cwd=folder)
    assert str(ROOT) not in shown
    assert shown.count("site-packages") == 2
