"""Task packages: what is in them, what a VM makes of them, what is refused."""

import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from walle_stream.errors import PackageError, ScriptError
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.package.build import ask_interpreter, build_package
from walle_stream.vm.package.reader import (
    CURRENT_TAG,
    PackagedTask,
    read_package,
)
from walle_stream.vm.program import TaskProgram, compile_program
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
LIMITS = RunLimits(1_000, 10, 5, 2_000, 2, 0, 9_999)


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
    # the bytes may differ: marshal writes down which objects are one
    assert loads(made.packed) == loads(given.packed)
    assert msgspec.structs.replace(made, packed=given.packed) == given
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
    assert package.parts["script.py"].decode() == SOURCE
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


def test_no_path_of_the_builder_is_in_it(data):
    package = read_package(data)
    everything = b"".join(package.parts.values()) + msgspec.json.encode(package.manifest)
    folders = (ROOT, Path.home(), sys.prefix, sys.base_prefix, os.__file__.rpartition("/")[0])
    assert [folder for folder in folders if str(folder).encode() in everything] == []


def test_what_a_script_needs_is_found_by_importing_it():
    def asked(*names):
        answer = ask_interpreter(sys.executable, {"imports": names})
        return [len(answer[part][0]) for part in ("base", "modules")], answer["modules"][1]

    (base, none), extensions = asked("json", "hashlib", "collections.abc")
    assert base > 1_000_000  # digits, two for each byte
    assert (none, extensions) == (0, [])
    (same, more), _ = asked("datetime", "statistics")
    assert same == base
    assert more > 100_000


# several interpreters


def test_a_package_names_the_interpreters_that_it_was_checked_with(data, other_python):
    python, tag = other_python
    package = read_package(build_package(task(), SOURCE, pythons=[python, python, sys.executable]))
    assert read_package(data).manifest.interpreters == (CURRENT_TAG,)
    assert package.manifest.interpreters == tuple(sorted((CURRENT_TAG, tag)))
    assert call(package.program()).ok


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
        ("/bin/false", "'/bin/false' gave no answer (no output)"),
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
    with pytest.raises(PackageError, match=r"cannot be used: it is cpython 3\.9\.1: name another"):
        build_package(task(), SOURCE, pythons=[str(old)])
