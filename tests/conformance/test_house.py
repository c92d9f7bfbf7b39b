"""The house rules that no linter knows, on the tree as it is."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import walle_stream

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("walle_stream", "connectors/walle_connectors", "deploy/walle_deploy")
LINES_MAX = 500
NAMES_MAX = 7
ARCHITECTURE_LINES_MAX = 200
BANNED_NAMES = {"common", "data", "helper", "helpers", "manager", "managers", "util", "utils"}
# vocabularies that belong in one file each: the errors, the seams, the YAML kinds, the keys on disk
MANY_NAMES = {
    "walle_stream/errors/__init__.py",
    "walle_stream/errors/deploy.py",
    "walle_stream/errors/vm.py",
    "walle_stream/errors/base.py",
    "walle_stream/errors/stores.py",
    "walle_stream/engine/operators.py",
    # a release's events are one union, which its machine matches
    "deploy/walle_deploy/release/events.py",
    # operator sets and namespaces of the engine: rules import them whole
    "walle_stream/engine/graph.py",
    "walle_stream/engine/region.py",
    "walle_stream/engine/backends/kernels.py",
    "walle_stream/engine/lowering/moves.py",
    "walle_stream/engine/lowering/registry.py",
    "walle_stream/ports/__init__.py",
    "walle_stream/spec/models.py",
    "walle_stream/store/keys.py",
}
# what Python documents under such names: of ``os``, and of named tuples
DOCUMENTED = {"_exit", "_replace"}
# in two parts, so that this file does not hold what it looks for
MACHINE = re.compile(
    r"(?<![\w./-])/(?:" + "root|home/\\w|work|Users" + r")/"
    r"|" + "py" + r"pi\.org|python" + r"hosted|/opt/" + "wheels|--index-" + "url|--extra-" + "index"
)


def modules():
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def python_files():
    folders = ("tests", "bench", "configs")
    return modules() + sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def public_names(path):
    """Classes, functions and types that a module defines for others."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names = [name]
            case ast.AsyncFunctionDef(name=name) | ast.TypeAlias(name=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def foreign_privates(tree):
    """Names that begin with one underscore and are asked of what a module did not make itself."""
    own = set(DOCUMENTED)
    asked = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)  # what a class asks of itself is its own, or that of its base
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case (
                ast.Attribute(attr=name)
                | ast.Call(
                    func=ast.Name(id="getattr" | "hasattr" | "setattr" | "delattr"),
                    args=[_, ast.Constant(value=str(name)), *_],
                )
            ):
                asked.append((node.lineno, name))
    return [each for each in asked if re.match("_[^_]", each[1]) and each[1] not in own]


def test_no_file_is_too_long():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_modules_are_small_on_the_whole():
    lengths = sorted(len(path.read_text().splitlines()) for path in modules())
    assert lengths[len(lengths) // 2] <= 150


def test_no_module_has_many_public_names():
    found = {name_of(path): list(public_names(path)) for path in modules()}
    many = {
        name: names
        for name, names in found.items()
        if len(names) > NAMES_MAX and name not in MANY_NAMES and not name.endswith("__init__.py")
    }
    assert many == {}


def test_no_module_is_named_after_nothing():
    parts = {part for path in modules() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not parts & BANNED_NAMES


def test_every_module_says_what_it_is_for():
    bare = [name_of(p) for p in modules() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert bare == []


def test_connectors_touch_nothing_private_of_a_library():
    paths = (ROOT / "connectors").rglob("*.py")
    found = {name_of(path): foreign_privates(ast.parse(path.read_text())) for path in paths}
    assert {name: asked for name, asked in found.items() if asked} == {}
    code = "self._a; b._a; b._c; getattr(b, '_d', 0); b.__e__; b._replace(f=1)"
    assert foreign_privates(ast.parse(code)) == [(1, "_c"), (1, "_d")]


def tracked_files():
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: which files are ours is not known")
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_machine_or_a_package_index():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # samples are packed
        found += [f"{name_of(path)}: {match.group()}" for match in MACHINE.finditer(text)]
    assert found == []


def test_the_lock_pins_every_package_to_one_version():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    shape = re.compile(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==[\w.]+( ; .+)?")
    assert [line for line in pins if not shape.fullmatch(line)] == []
    assert not [line for line in pins if line.startswith(("cupy", "walle-stream"))]


def test_the_import_contracts_are_kept():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_is_light():
    code = "import sys, walle_stream; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {"msgspec", "numpy", "pydantic", "ray", "rich", "rocksdict", "yaml", "zstandard"}
    assert "walle_stream" in loaded
    assert not loaded & heavy


def test_the_newest_changelog_entry_is_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(\d.+?)\]", text, re.MULTILINE)
    assert released[:1] in ([], [walle_stream.__version__])  # none was made yet


def test_the_architecture_page_is_short():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= ARCHITECTURE_LINES_MAX


def test_each_package_says_that_it_is_typed():
    assert all((ROOT / package / "py.typed").exists() for package in PACKAGES)


def test_every_make_target_is_explained():
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert targets - explained == {"fmt-check"}
