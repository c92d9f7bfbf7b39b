"""Makes task packages: compiles a script for several interpreters, packs the result.

Each interpreter compiles for itself, in a process of its own (``tracing``): the
bytes depend on nothing that this process did before. Place in the flow: ``app``
reads the definition and the files, this makes the bytes, ``package`` reads them.
"""

import ast
import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import walle_stream
from walle_stream.errors import PackageError, ScriptError
from walle_stream.vm import gate
from walle_stream.vm.guest import GUEST_API_VERSION
from walle_stream.vm.package import tracing
from walle_stream.vm.package.reader import (
    FORMAT,
    MANIFEST,
    MANIFEST_MAX_BYTES,
    MEMBERS_MAX,
    PACKAGE_MAX_BYTES,
    RESOURCE_NAME,
    RESOURCE_NAME_MAX,
    SEAL,
    Interpreter,
    Manifest,
    PackagedTask,
    Part,
)
from walle_stream.vm.program import RunLimits, TaskProgram, compile_program, script_error

WORKER_TIMEOUT_S: Final = 120
"""Longest time that an interpreter may take for its part."""

_NOTHING: Final = "def run(ctx, page):\n    pass\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say


class Compiled(msgspec.Struct, frozen=True):
    """An interpreter's part of a package."""

    tag: str
    python: str
    """Its version."""
    magic: str
    script: bytes
    """``script.bin``."""
    modules_bin: bytes
    modules: dict[str, str]
    """Where each module that the imports need comes from, by name."""
    base_bin: bytes
    """The same layout as ``modules.bin``, of the base; not in packages."""
    base: dict[str, str]


def build_package(
    task: PackagedTask,
    source: str,
    resources: Mapping[str, bytes] | None = None,
    pythons: Sequence[str] = (),
) -> bytes:
    """Make a package for this interpreter and others.

    Args:
        task: The definition.
        source: Text of its script.
        resources: Contents by name.
        pythons: Other interpreters: paths, names on PATH, or versions like
            ``3.13``; one whose bytecode is there already adds nothing.

    Returns:
        The bytes of the file; the same for the same input.

    Raises:
        ScriptError: The script is wrong, for this interpreter or another.
        PackageError: An interpreter is not there or cannot take part, or the
            resources are too large or wrongly named.
    """
    contents = {} if resources is None else resources
    compiled = {
        part.tag: part
        # this interpreter last: it wins over another one of the same bytecode
        for part in (compile_for(name, task, source) for name in (*pythons, sys.executable))
    }
    interpreters: dict[str, Interpreter] = {}
    members: dict[str, bytes] = {}
    for tag, part in sorted(compiled.items()):
        own = {f"code/{tag}/modules.bin": part.modules_bin, f"code/{tag}/script.bin": part.script}
        parts = {name: _part(data) for name, data in own.items()}
        interpreters[tag] = msgspec.convert(
            {
                "magic": part.magic,
                "python": part.python,
                "members": parts,
                "modules": part.modules,
                "base": part.base,
            },
            Interpreter,
        )
        members |= own
    for name, data in sorted(contents.items()):
        members[f"resources/{name}"] = data
    manifest = Manifest(
        FORMAT,
        GUEST_API_VERSION,
        task,
        interpreters,
        {name: _part(data) for name, data in sorted(contents.items())},
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    _check_bounds(task.name, contents, [text, *members.values()])
    return _sealed({MANIFEST: text, **members})


def compile_for(python: str, task: PackagedTask | None = None, source: str = _NOTHING) -> Compiled:
    """Compile a script in another process; blocks for some 0.2 s.

    Args:
        python: Which interpreter: a path, a name on PATH, or a version.
        task: Whose script; None only measures what every VM needs.
        source: Text of the script.

    Raises:
        ScriptError: The script is wrong.
        PackageError: The interpreter is not there or cannot take part.
    """
    name, file = ("", "") if task is None else (task.name, task.file)
    program = TaskProgram(name, "", source, file)
    if task is not None:
        limits = RunLimits(*msgspec.structs.astuple(task.limits))
        program = TaskProgram(
            name, task.version, source, file, task.config, limits, "shared", task.state_version
        )
    compile_program(program)  # what is wrong on every Python is said by this one
    request = {
        "root": str(Path(walle_stream.__file__).resolve().parents[1]),
        "source": source,
        "file": file,
        "imports": sorted(gate.imported_modules(ast.parse(source))),
    }
    answer = _ask(python, request)
    if "error" not in answer:
        return _from_answer(python, answer)
    if answer["line"] < 0:
        raise PackageError(
            f"the interpreter {python!r} cannot take part: {answer['error']}: name another one",
            python,
        )
    text = f"for Python {answer['python']}: {answer['error']}"
    error: ScriptError = script_error(program, answer["line"], text, answer["column"])
    raise error


def _ask(python: str, request: Mapping[str, object]) -> dict[str, Any]:
    command = [_find(python), "-I", "-S", "-B", tracing.__file__]
    try:
        done = subprocess.run(  # noqa: S603 - an interpreter that the user named
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=WORKER_TIMEOUT_S,
            check=False,
        )
        answer = json.loads(done.stdout) if not done.returncode else None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _no_answer(python, str(error)) from error
    if not isinstance(answer, dict):
        lines = done.stderr.strip().splitlines() or ["no word"]
        # Python ends with what is wrong, the shims of version managers begin with it
        is_python = lines[0].startswith(("Traceback", "File "))
        raise _no_answer(python, lines[-1 if is_python else 0].strip())
    return answer


def _from_answer(python: str, answer: Mapping[str, Any]) -> Compiled:
    try:
        given = {
            name: bytes.fromhex(value) if name in {"script", "modules_bin", "base_bin"} else value
            for name, value in answer.items()
        }
        return msgspec.convert(given, Compiled)
    except (ValueError, TypeError) as error:
        raise _no_answer(python, str(error)) from error


def _no_answer(python: str, text: str) -> PackageError:
    return PackageError(
        f"the interpreter {python!r} gave no answer ({text}): give the path of a CPython 3.13 or "
        "newer, or its name on PATH",
        python,
    )


def _find(python: str) -> str:
    name = f"python{python}" if python.replace(".", "").isdecimal() else python
    found = shutil.which(name)
    if found is None:
        raise PackageError(
            f"there is no interpreter {name!r}: give the path of a CPython 3.13 or newer, or its "
            "name on PATH",
            python,
        )
    return found


def _part(data: bytes) -> Part:
    return Part(hashlib.sha256(data).hexdigest(), len(data))


def _check_bounds(task: str, resources: Mapping[str, bytes], members: Sequence[bytes]) -> None:
    # what no reader would take must not be made
    for name in resources:
        if not RESOURCE_NAME.fullmatch(name) or len(name) > RESOURCE_NAME_MAX:
            raise PackageError(
                f"task {task!r}: a resource cannot be named {name!r}: use letters, digits and "
                f"._- in parts between slashes, at most {RESOURCE_NAME_MAX} characters",
                member=name,
            )
    total, manifest = sum(map(len, members)), len(members[0])
    if total > PACKAGE_MAX_BYTES or manifest > MANIFEST_MAX_BYTES or len(members) > MEMBERS_MAX:
        raise PackageError(
            f"task {task!r}: a package holds at most {PACKAGE_MAX_BYTES} bytes in {MEMBERS_MAX} "
            f"members and a manifest of {MANIFEST_MAX_BYTES}, found {total} in {len(members)} "
            f"and {manifest}: take resources out of spec.resources"
        )


def _sealed(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3  # unix, also where the builder is none
            info.external_attr = 0o100644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=9)
        archive.comment = SEAL + bytes(64)
    data = stream.getvalue()[:-64]
    return data + hashlib.sha256(data).hexdigest().encode()
