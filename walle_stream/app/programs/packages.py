"""Task packages from definitions, and a report of their sizes.

``walle task`` calls this module. It reads the YAML, the script and the resources;
``vm.package.build`` checks and packs them.
"""

import ast
import os
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.app.programs.programs import load_program, packaged
from walle_stream.errors import PackageError, SpecFileError
from walle_stream.spec.connectors import ConnectorModels
from walle_stream.spec.loader import load_pipeline, load_task
from walle_stream.spec.models import Task
from walle_stream.spec.suggestions import suggest
from walle_stream.store.files import FULL_DISK, put_file
from walle_stream.vm import gate
from walle_stream.vm.bundle import guest_bundle
from walle_stream.vm.package.build import ask_interpreter, build_package
from walle_stream.vm.package.reader import (
    MANIFEST,
    SCRIPT,
    PackagedTask,
    TaskPackage,
    read_package,
)

# excluded from the standard library: files made from the others, installed packages, and tests
_NOT_COUNTED: Final = frozenset(
    {"site-packages", "__pycache__", "test", "tests", "idle_test", "lib-dynload"}
)
_COMPRESSION: Final = 9


class Size(msgspec.Struct, frozen=True):
    """Size of an item, raw and compressed."""

    raw_bytes: int
    """Inflated."""
    packed_bytes: int
    """Deflated."""


class SizeReport(msgspec.Struct, frozen=True):
    """Sizes of a package, of the runtime it needs and of a full Python; each has a ``total``."""

    package: dict[str, Size]
    """``script``, ``resources``, ``manifest``."""
    runtime: dict[str, Size]
    """Sizes of the other parts that a device must have.

    ``guest_library``; the ``base_modules`` that it needs and the ``standard_modules`` that the
    script adds, both as bytecode; their ``extensions``; and ``interpreter`` as on this machine, not
    stripped.
    """
    full: dict[str, Size]
    """This machine's ``interpreter``, ``standard_library`` and all its ``extensions``.

    The standard library is its source without tests.
    """
    percent_of_full: dict[str, float]
    """``package``, ``runtime`` and ``device`` (both together), deflated, of the deflated total."""


def find_task(file: Path, name: str | None = None) -> Task:
    """Load a task: that of a Task file, or a pipeline's task by its name.

    Raises:
        SpecFileError: The file is wrong, does not identify the task, or has it as a package.
    """
    single = load_task(file)
    if single is not None:
        tasks: tuple[Task | PackagedTask, ...] = (single,)
    else:
        tasks = load_pipeline(
            file,
            connector_models=ConnectorModels(),
            look_for_scripts=True,
            read_package=lambda path: read_package(path).manifest.task,
        ).tasks
    names = [task.metadata.name if isinstance(task, Task) else task.name for task in tasks]
    if name is None and len(tasks) > 1:
        raise SpecFileError(
            f"{file}: has the tasks {', '.join(names)}: choose one with --task", str(file)
        )
    for own_name, task in zip(names, tasks, strict=True):
        if name in {None, own_name}:
            if isinstance(task, Task):
                return task
            raise SpecFileError(
                f"{file}: the task {own_name!r} is already a package: give the YAML from which it "
                "was built",
                str(file),
            )
    raise SpecFileError(f"{file}: there is no task {name!r}{suggest(str(name), names)}", str(file))


def package_task(task: Task, pythons: Sequence[str] = ()) -> bytes:
    """Build the package of a task; blocks for some 0.2 s per other interpreter.

    Raises:
        ScriptError: The script is wrong, or it or a resource cannot be read.
        PackageError: An interpreter cannot be used, or the resources are too large.
    """
    program = load_program(task)
    return build_package(packaged(task), program.source, program.resources, pythons)


def write_package(data: bytes, path: Path) -> None:
    """Write a package atomically; an existing file is replaced.

    Raises:
        OSError: The disk is full.
        PackageError: The file cannot be written.
    """
    try:
        put_file(path, data)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise
        raise PackageError(
            f"{path}: cannot be written: {error.strerror or error}: give another -o", str(path)
        ) from error


def size_report(package: TaskPackage) -> SizeReport:
    """Measure a package against this machine's Python; reads all of its files, some 5 s."""
    tree = ast.parse(package.parts[SCRIPT])
    needs = ask_interpreter(sys.executable, {"imports": sorted(gate.imported_modules(tree))})
    (base, named), (added, named_too) = needs["base"], needs["modules"]
    specs = (find_spec(name) for name in (*named, *named_too))
    interpreter = _measured(_interpreter_files())
    runtime = {
        "guest_library": _size(guest_bundle()),
        "base_modules": _size(bytes.fromhex(base)),
        "standard_modules": _size(bytes.fromhex(added)),
        "extensions": _measured(Path(spec.origin) for spec in specs if spec and spec.origin),
        "interpreter": interpreter,
    }
    full = {
        "interpreter": interpreter,
        "standard_library": _measured(_library_files()),
        "extensions": _measured(_extension_files()),
    }
    parts = package_sizes(package)
    runtime["total"], full["total"] = _sum(runtime.values()), _sum(full.values())
    device = _sum((parts["total"], runtime["total"]))
    shares = {"package": parts["total"], "runtime": runtime["total"], "device": device}
    percent = {
        name: round(100 * size.packed_bytes / full["total"].packed_bytes, 2)
        for name, size in shares.items()
    }
    return SizeReport(parts, runtime, full, percent)


def package_sizes(package: TaskPackage) -> dict[str, Size]:
    """Return the sizes of a package's parts, and ``total``: the file."""
    sizes = {}
    script, *resources = package.parts
    for part, names in (("script", [script]), ("resources", resources)):
        raw = sum(len(package.parts[name]) for name in names)
        sizes[part] = Size(raw, sum(package.packed_bytes[name] for name in names))
    sizes["manifest"] = Size(package.manifest_bytes, package.packed_bytes[MANIFEST])
    raw = sum(size.raw_bytes for size in sizes.values())
    return {**sizes, "total": Size(raw, package.size_bytes)}


def _interpreter_files() -> list[Path]:
    executable = Path(sys.executable).resolve()
    files = [executable]
    library = sysconfig.get_config_var("INSTSONAME")
    if library and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folders = (executable.parent.parent / "lib", Path(sysconfig.get_config_var("LIBDIR") or ""))
        files += [folder / library for folder in folders if (folder / library).is_file()][:1]
    return files


def _library_files() -> list[Path]:
    files = []
    for folder, folders, names in Path(sysconfig.get_path("stdlib")).walk():
        # config-*: files for linking extensions, not for running them
        folders[:] = [
            name for name in folders if name not in _NOT_COUNTED and not name.startswith("config-")
        ]
        files += [folder / name for name in names]
    return files


def _extension_files() -> list[Path]:
    folders = [Path(sysconfig.get_path(name)) / "lib-dynload" for name in ("platstdlib", "stdlib")]
    shared = sysconfig.get_config_var("DESTSHARED")
    folders += [Path(shared)] if shared else []
    packages = (folder for folder in folders if folder.is_dir())
    return sorted(next(packages, Path(os.devnull)).glob("*.so"))


def _measured(files: Iterable[Path]) -> Size:
    return _sum(_size(path.read_bytes()) for path in files if path.is_file())


def _size(data: bytes) -> Size:
    return Size(len(data), len(zlib.compress(data, _COMPRESSION)))


def _sum(sizes: Iterable[Size]) -> Size:
    all_sizes = list(sizes)
    return Size(
        sum(size.raw_bytes for size in all_sizes), sum(each.packed_bytes for each in all_sizes)
    )
