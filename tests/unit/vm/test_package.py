"""Task packages: what is in them, what a VM makes of them, what is refused."""

import ast
import json
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import CodeType

import msgspec
import pytest

import walle_stream
from walle_stream.errors import PackageError, ScriptError
from walle_stream.vm import gate
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.guest.rules import ALLOWED_MODULES
from walle_stream.vm.package.build import build_package, compile_for
from walle_stream.vm.package.reader import (
    CURRENT_TAG,
    PackagedLimits,
    PackagedTask,
    read_package,
)
from walle_stream.vm.program import RunLimits, TaskProgram, compile_program
from walle_stream.vm.virtual_machine import VirtualMachine

pytestmark = pytest.mark.vm

ROOT = Path(__file__).resolve().parents[3]
SOURCE = '''"""What this task is for."""
import json
from hashlib import blake2b


def run(ctx, page):
    """Emit one feature."""
    assert page.events, "a secret comment would stand here"  # but comments do not
    ctx.emit({"item": page.trigger.item, "gap": ctx.config["gap"]})
'''
CONFIG = {"zeta": [1, 2.5, None, True], "gap": 5, "ünï": {"b": "x", "a": 2**63}}
LIMITS = PackagedLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)


def loads(data):
    return marshal.loads(data)  # noqa: S302 - made here


def task(**changes):
    given = {
        "name": "t",
        "version": "v1",
        "state_version": 1,
        "file": "t.py",
        "triggers": (("page_exit",), ("a", "b")),
        "fields": None,
        "config": CONFIG,
        "limits": LIMITS,
    }
    return PackagedTask(**{**given, **changes})


def script_of(text):
    return text + "\ndef run(ctx, page): pass\n"


@pytest.fixture(scope="module")
def data():
    return build_package(task(), SOURCE, {"b/model.bin": b"\0" * 5000, "a.txt": b"hello"})


@pytest.fixture(scope="module")
def other_python():
    """The supported Python that this is not, and its tag."""
    version = "3.13" if sys.version_info >= (3, 14) else "3.14"
    here = [ROOT / folder / "bin/python" for folder in (".venv-other", f".venv-{version}", ".venv")]
    for python in (*map(str, here), shutil.which(f"python{version}") or ""):
        if python and Path(python).exists():
            ask = [python, "-c", "import sys; print(sys.implementation.cache_tag)"]
            found = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
            if found == f"cpython-{version.replace('.', '')}":
                return python, found
    return pytest.skip(f"no Python {version} on this machine")


def call(program):
    page = ("video", "v1@1", "exit", 9, ("page_exit", "page_exit", 9, 9, {"item": "i"}), [])
    rows = [("page_enter", "page_enter", 9, 9, {"item": "i"})]
    groups = [("device-1", {}, [(1, 1_500, (*page[:5], rows))])]
    machine = VirtualMachine(program)
    try:
        ((run,),) = [group.runs for group in machine.call(groups, encode_groups(groups))]
        return run
    finally:
        machine.destroy()


# what is in it


def test_a_vm_runs_a_packaged_task_as_it_runs_the_script(data):
    package = read_package(data)
    limits = RunLimits(*msgspec.structs.astuple(LIMITS))
    resources = {name: package.resource(name) for name in package.manifest.resources}
    given = compile_program(
        TaskProgram("t", "v1", SOURCE, "t.py", CONFIG, limits, resources=resources)
    )
    made = package.program()
    # all but the last: what a package brings to import
    assert loads(made.packed)[:-1] == loads(given.packed)[:-1]
    assert (made.wall_time_ms, made.strikes) == (given.wall_time_ms, given.strikes)
    assert call(made) == call(given)
    assert call(made).emits == [(b'{"item":"i","gap":5}', b"")]


def test_the_order_of_config_is_that_of_the_definition(data):
    assert list(read_package(data).manifest.task.config) == list(CONFIG)


def test_line_numbers_file_name_and_asserts_stay():
    source = "x = 1\n\ndef run(ctx, page):\n    assert not page.events, 'too many'\n"
    run = call(read_package(build_package(task(file="my task.py"), source)).program())
    assert run.message == "my task.py:4: AssertionError: too many"


def test_the_definition_is_whole_and_resources_are_as_they_were(data):
    package = read_package(data)
    assert package.manifest.task == task()
    assert package.manifest.guest_api == 1
    assert package.resource("b/model.bin") == bytes(5000)
    assert package.resource("a.txt") == b"hello"
    assert list(package.manifest.resources) == ["a.txt", "b/model.bin"]
    assert package.size_bytes == len(data)
    with pytest.raises(PackageError, match=r"no resource 'c'.* found a\.txt, b/model\.bin"):
        package.resource("c")


def test_the_same_input_gives_the_same_bytes_in_any_process(data):
    code = (
        "import sys; from walle_stream.vm.package.reader import *; from walle_stream.vm.package.build "
        "import *\nimport msgspec, pathlib\ntask = msgspec.json.decode(sys.argv[1], "
        "type=PackagedTask)\ndata = build_package(task, sys.argv[2], {'a.txt': b'hello', "
        "'b/model.bin': bytes(5000)})\nsys.stdout.buffer.write(data)"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo"}
    done = subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(task()).decode(), SOURCE],
        cwd="/",
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert done.stdout == data


def test_no_source_and_no_path_of_the_builder_is_in_it():
    package = read_package(build_package(task(), "import dataclasses\n" + SOURCE))
    everything = b"".join(package.parts.values()) + msgspec.json.encode(package.manifest)
    assert b"comments do not" not in everything
    assert b"def run" not in everything
    folders = (ROOT, Path.home(), sys.prefix, sys.base_prefix, os.__file__.rpartition("/")[0])
    assert [folder for folder in folders if str(folder).encode() in everything] == []
    assert b"Add dunder methods based on the fields" not in everything  # of @dataclass


def test_what_the_guest_needs_itself_is_not_shipped_again(data):
    interpreter = read_package(data).manifest.interpreters[CURRENT_TAG]
    assert interpreter.modules == {}
    assert {"json", "json.decoder", "hashlib", "struct", "random"} <= interpreter.base.keys()
    assert {interpreter.base[name] for name in ("json", "typing")} == {"bytecode"}
    assert interpreter.base["marshal"] == "built-in"
    assert "walle_stream" not in "".join(interpreter.base)


def test_shipped_modules_are_those_of_the_manifest():
    package = read_package(build_package(task(), script_of("import datetime, statistics")))
    kinds = package.manifest.interpreters[CURRENT_TAG].modules
    shipped = loads(package.standard_modules())
    assert [name for name, _, _ in shipped] == [
        n for n, kind in kinds.items() if kind == "bytecode"
    ]
    assert {"_strptime", "datetime", "fractions", "statistics"} <= {name for name, _, _ in shipped}
    for name, is_package, code in shipped:
        assert isinstance(loads(code), CodeType), name
        assert not is_package, name
        assert loads(code).co_filename == f"<{name}>"


# runs in a bare interpreter in which nothing can be imported but what a device has
DEVICE = """
import sys
import json
import marshal
root, given = sys.argv[1], json.load(open(sys.argv[2]))
own, kinds = bytes.fromhex(given["modules_bin"]), {**given["base"], **given["modules"]}
base = bytes.fromhex(given["base_bin"])
bundled = {name: code for name, _, code in marshal.loads(own) + marshal.loads(base)}
packages = {name for name, is_package, _ in marshal.loads(own) + marshal.loads(base) if is_package}
for name in [each for each in sys.modules if kinds.get(each, "") == "bytecode"]:
    if name.partition(".")[0] not in {"encodings", "codecs"}:
        del sys.modules[name]
from importlib.machinery import ModuleSpec


class Device:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "walle_stream" or kinds.get(name, "bytecode") != "bytecode":
            return None
        if name not in bundled:
            raise ModuleNotFoundError(f"the device has no {name!r}", name=name)
        return ModuleSpec(name, self, is_package=name in packages)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(marshal.loads(bundled[module.__spec__.name]), module.__dict__)


sys.meta_path.insert(0, Device())
sys.path.append(root)
from walle_stream.vm.guest.modules import make_importer
from walle_stream.vm.guest.restricted import REPLACED_NAMES, make_builtins
builtins = make_builtins(make_importer(given["imports"], REPLACED_NAMES))
exec(given["script"], {"__builtins__": builtins, "__name__": "task"})
print("done")
"""
HEAVY = ("dataclasses", "datetime", "hmac", "statistics", "string")
USES = """
import __future__, abc, array, base64, binascii, bisect, copy, decimal, enum, fractions, functools, hashlib
import heapq, hmac, itertools, json, math, numbers, operator, re, statistics, string, struct
import textwrap, unicodedata, zlib
import collections, collections.abc
from dataclasses import dataclass, field, asdict
from datetime import datetime, UTC, timedelta
from typing import NamedTuple, TypedDict
assert datetime.strptime("2024-01-02", "%Y-%m-%d").strftime("%d %B") == "02 January"
assert datetime.fromisoformat("2024-01-02T00:00:00+00:00").tzinfo == UTC
@dataclass(frozen=True, order=True)
class A:
    x: int
    y: list[int] = field(default_factory=list)
assert asdict(A(1)) == {"x": 1, "y": []} and A(1) < A(2)
N = NamedTuple("N", [("a", int)])
class E(enum.Enum):
    A = enum.auto()
class T(TypedDict):
    a: int
assert copy.deepcopy([A(1)]) == [A(1)] and copy.copy({1: 2}) == {1: 2}
assert decimal.Decimal("1.10") + 1 == fractions.Fraction(21, 10)
assert f"{decimal.Decimal('1234.5'):,.2f}" == "1,234.50"
assert statistics.fmean([1, 2]) == 1.5 and statistics.quantiles([1, 2, 3], n=4)
assert statistics.NormalDist(0, 1).cdf(0) == 0.5
assert 7 ** 40_000 // 3 ** 30_000 > 0 and int("9" * 4_000) > 0
assert string.Template("$a").substitute(a=1) == "1" and textwrap.dedent("  a") == "a"
assert hmac.new(b"k", b"m", "sha256").hexdigest() and hashlib.md5(b"").hexdigest()
assert hashlib.pbkdf2_hmac("sha256", b"p", b"s", 1) and base64.b85encode(b"ab")
assert re.sub(r"(\\d)", r"<\\1>", "a1", flags=re.I) == "a<1>" and list[int] and (int | None)
assert functools.reduce(operator.add, [1, 2]) == 3 and json.loads('{"a": 1.5}')
assert isinstance([], collections.abc.Sequence) and collections.OrderedDict(a=1)
"""


@pytest.mark.parametrize("name", [*HEAVY, "all"])
def test_the_trace_is_closed(name, tmp_path):
    """Nothing is imported on a device that neither the base nor the package has."""
    source = USES if name == "all" else f"import {name}"
    answer = compile_for(sys.executable, task(), script_of(source))
    request = {
        "modules_bin": answer.modules_bin.hex(),
        "base_bin": answer.base_bin.hex(),
        "modules": answer.modules,
        "base": answer.base,
        "imports": sorted(gate.imported_modules(ast.parse(source))),
        "script": source,
    }
    (tmp_path / "given.json").write_text(json.dumps(request))
    (tmp_path / "device.py").write_text(DEVICE)
    root = Path(walle_stream.__file__).parents[1]
    command = [sys.executable, "-I", "-S", "-B", tmp_path / "device.py", root]
    done = subprocess.run(
        [*command, tmp_path / "given.json"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr


# several interpreters


def test_bytecode_of_two_interpreters_in_one_package(other_python):
    python, tag = other_python
    package = read_package(build_package(task(), SOURCE, pythons=[python, python, sys.executable]))
    assert sorted(package.manifest.interpreters) == sorted([CURRENT_TAG, tag])
    assert call(package.program()).ok
    code = (
        "import marshal, sys; code, imports, shares = marshal.loads(sys.stdin.buffer.read())\n"
        "run = next(c for c in code.co_consts if hasattr(c, 'co_name') and c.co_name == 'run')\n"
        "print(code.co_filename, run.co_firstlineno, imports, shares)"
    )
    done = subprocess.run(
        [python, "-I", "-c", code], input=package.code(tag), capture_output=True, check=True
    )
    assert done.stdout.decode() == "t.py 6 ['hashlib', 'json'] True\n"
    assert len(loads(package.standard_modules(tag))) == 0


def test_a_script_that_only_another_python_refuses_is_named_with_it(other_python):
    python, tag = other_python
    if tag != "cpython-313":
        pytest.skip("only 3.14 knows more than the other one")
    source = "x = 1\nt't{x}'" + script_of("")
    with pytest.raises(
        ScriptError, match=r"^t\.py:2:\d+: task 't': for Python 3\.13\.\d+: .*valid"
    ):
        build_package(task(), source, pythons=[python])


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/nowhere/python", "there is no interpreter '/nowhere/python'"),
        ("2.99", "there is no interpreter 'python2.99'"),
        ("", "there is no interpreter ''"),
        ("/bin/false", "'/bin/false' gave no answer (no word)"),
        ("/bin/true", "'/bin/true' gave no answer"),
        ("/bin/cat", "'/bin/cat' gave no answer"),
    ],
)
def test_an_interpreter_that_is_none_is_named(python, words):
    with pytest.raises(PackageError) as caught:
        build_package(task(), SOURCE, pythons=[python])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_interpreter_that_is_too_old_is_named(tmp_path):
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\necho \'{"error": "it is cpython 3.9.1", "line": -1}\'\n')
    old.chmod(0o755)
    with pytest.raises(
        PackageError, match=r"cannot take part: it is cpython 3\.9\.1: name another"
    ):
        build_package(task(), SOURCE, pythons=[str(old)])


def test_the_closed_trace_was_tried_with_every_allowed_module():
    assert gate.imported_modules(ast.parse(USES)) >= ALLOWED_MODULES.keys()
