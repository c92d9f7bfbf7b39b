"""Sub-commands about task packages: build, size, show."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.app.programs.isolation import note_built
from walle_stream.app.programs.packages import (
    Size,
    find_task,
    package_sizes,
    package_task,
    size_report,
    write_package,
)
from walle_stream.app.resources import find_definition
from walle_stream.vm.package.reader import SUFFIX, TaskPackage, read_package

_KB: Final = 1_000


def build(options: argparse.Namespace) -> int:
    """Compile a task into a package; print the package's path and sizes."""
    task = find_task(find_definition(options.file), options.task)
    data = package_task(task, options.python)
    package = read_package(data)  # proves that the package is readable before writing it
    path = options.output or Path(package.manifest.task.file_name)
    write_package(data, path)
    note_built(data)
    sizes, interpreters = package_sizes(package), list(package.manifest.interpreters)
    if options.json:
        facts = {
            "path": str(path),
            "task": task.metadata.name,
            "version": task.spec.version,
            "interpreters": interpreters,
            "sizes": sizes,
        }
        print(msgspec.json.encode(facts).decode())
    else:
        print(f"made {path} for {', '.join(interpreters)}: {_shown(sizes['total'].packed_bytes)}")
        for name, size in sizes.items():
            if name != "total":
                print(f"  {_title(name):<18}{_shown(size.packed_bytes):>12}")
    return 0


def size(options: argparse.Namespace) -> int:
    """Print the sizes of a package, of its runtime, and of a full Python."""
    package = _package(options)
    report = size_report(package)
    if options.json:
        print(msgspec.json.encode(report).decode())
        return 0
    task, tags = package.manifest.task, ", ".join(package.manifest.interpreters)
    _print_table(f"package {task.name} {task.version} ({tags})", report.package)
    _print_table("runtime on the device (interpreter not stripped)", report.runtime)
    _print_table("a full Python of this machine (no tests, no site-packages)", report.full)
    percent = report.percent_of_full
    print(
        f"deflated, of the full Python: package {percent['package']:g} %, "
        f"with its runtime {percent['device']:g} %"
    )
    return 0


def show(options: argparse.Namespace) -> int:
    """Print a package's manifest."""
    text = msgspec.json.encode(read_package(options.file).manifest)
    print((text if options.json else msgspec.json.format(text, indent=2)).decode())
    return 0


def _package(options: argparse.Namespace) -> TaskPackage:
    path = Path(options.file)
    if path.suffix == SUFFIX:
        return read_package(path)
    return read_package(
        package_task(find_task(find_definition(options.file), options.task), options.python)
    )


def _print_table(title: str, sizes: Mapping[str, Size]) -> None:
    print(f"{title:<62}{'inflated':>14}{'deflated':>14}")
    for name, size in sizes.items():
        print(f"  {_title(name):<60}{_shown(size.raw_bytes):>14}{_shown(size.packed_bytes):>14}")
    sys.stdout.write("\n")


def _title(name: str) -> str:
    return name.replace("_", " ")


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / _KB:,.1f} kB"
