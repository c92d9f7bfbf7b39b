"""Builder of task packages: checks a script, also with other interpreters, and packs it.

Each other interpreter checks in its own process (``asking``). Place in the data flow: ``app``
reads the definition and the files, this module makes the bytes, and ``reader`` reads them.
"""

import hashlib
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import walle_stream
from walle_stream.errors import PackageError
from walle_stream.vm.guest import GUEST_API_VERSION
from walle_stream.vm.package import asking
from walle_stream.vm.package.reader import (
    CURRENT_TAG,
    FORMAT,
    MANIFEST,
    MANIFEST_MAX_BYTES,
    MEMBERS_MAX,
    PACKAGE_MAX_BYTES,
    RESOURCE_NAME,
    RESOURCE_NAME_MAX,
    SCRIPT,
    SCRIPT_MAX_BYTES,
    SEAL,
    Manifest,
    PackagedTask,
    program_of,
)
from walle_stream.vm.program import TaskProgram, compile_program, script_error

WORKER_TIMEOUT_S: Final = 120
"""Longest wait for an interpreter's answer."""

_ROOT: Final = Path(walle_stream.__file__).resolve().parents[1]
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip


def build_package(
    task: PackagedTask,
    source: str,
    resources: Mapping[str, bytes] | None = None,
    pythons: Sequence[str] = (),
) -> bytes:
    """Check a task and pack it; the same input gives the same bytes.

    ``pythons`` check the script, too, in about 0.2 s each. They are paths, names on PATH, or
    versions like ``3.13``.

    Raises:
        ScriptError: The script is wrong for this interpreter or another.
        PackageError: An interpreter is missing or unsuitable, or the resources
            are too large or wrongly named.
    """
    contents = dict(sorted((resources or {}).items()))
    program = program_of(task, source, contents)
    compile_program(program)  # finds the problems that every Python has
    tags = {CURRENT_TAG, *(_check_with(name, program) for name in pythons)}
    members = {
        SCRIPT: source.encode("utf-8"),
        **{f"resources/{name}": data for name, data in contents.items()},
    }
    sizes = {name: len(data) for name, data in contents.items()}
    manifest = Manifest(FORMAT, GUEST_API_VERSION, task, tuple(sorted(tags)), sizes)
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    _check_bounds(task.name, contents, [text, *members.values()])
    return _sealed({MANIFEST: text, **members})


def _check_with(python: str, program: TaskProgram) -> str:
    # returns the interpreter's tag
    answer = ask_interpreter(python, {"source": program.source, "file": program.file})
    if "error" in answer:
        text = f"for Python {answer['python']}: {answer['error']}"
        raise script_error(program, answer["line"], text, answer["column"])
    return str(answer["tag"])


def ask_interpreter(python: str, request: Mapping[str, object]) -> dict[str, Any]:
    """Send an interpreter a request that ``asking`` documents; blocks for about 0.2 s.

    ``python`` is a path, a name on PATH, or a version.

    Raises:
        PackageError: The interpreter is missing or unsuitable.
    """
    answer = _answer(python, {"root": str(_ROOT), **request})
    if answer.get("line", 0) >= 0:
        return answer
    raise PackageError(
        f"the interpreter {python!r} cannot be used: {answer['error']}: name another one", python
    )


def _answer(python: str, request: Mapping[str, object]) -> dict[str, Any]:
    name = f"python{python}" if python.replace(".", "").isdecimal() else python
    path = shutil.which(name)
    if path is None:
        raise _no_answer(python, f"there is no interpreter {name!r}")
    command = [path, "-I", "-S", "-B", asking.__file__]
    try:
        process = subprocess.run(  # noqa: S603 - an interpreter that the user named
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=WORKER_TIMEOUT_S,
            check=False,
        )
        answer = json.loads(process.stdout) if not process.returncode else None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise _no_answer(python, str(error)) from error
    if isinstance(answer, dict) and ("error" in answer or "tag" in answer):
        return answer
    lines = process.stderr.strip().splitlines() or ["no output"]
    # Python's last line has the error; the shims of version managers have it in the first
    is_python = lines[0].startswith(("Traceback", "File "))
    raise _no_answer(python, lines[-1 if is_python else 0].strip())


def _no_answer(python: str, text: str) -> PackageError:
    return PackageError(
        f"the interpreter {python!r} gave no answer ({text}): give the path of a CPython 3.13 or "
        "newer, or its name on PATH",
        python,
    )


def _check_bounds(task: str, resources: Mapping[str, bytes], members: Sequence[bytes]) -> None:
    # refuse to build a package that readers would refuse
    for name in resources:
        if not RESOURCE_NAME.fullmatch(name) or len(name) > RESOURCE_NAME_MAX:
            raise PackageError(
                f"task {task!r}: a resource cannot be named {name!r}: use letters, digits and "
                f"._- in parts between slashes, at most {RESOURCE_NAME_MAX} characters",
                member=name,
            )
    total, manifest, script = sum(map(len, members)), len(members[0]), len(members[1])
    if script > SCRIPT_MAX_BYTES:
        raise PackageError(
            f"task {task!r}: a package's script has at most {SCRIPT_MAX_BYTES} bytes, found "
            f"{script}: put its data into spec.resources"
        )
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
            info.create_system = 3  # Unix, whatever the builder's system
            info.external_attr = 0o100644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=9)
        archive.comment = SEAL + bytes(64)
    data = stream.getvalue()[:-64]
    return data + hashlib.sha256(data).hexdigest().encode()
