"""The work and output of ``walle task list``, ``log``, ``diff`` and ``build`` of a version."""

import argparse
import sys
from pathlib import Path
from typing import Final

from walle_deploy.cli.output import SHORT, print_json, print_line
from walle_deploy.model.names import TaskRef
from walle_deploy.model.owners import USER_PREFIX
from walle_deploy.tasks.building import build_version, write_version
from walle_deploy.tasks.differences import Change, diff_folder, diff_versions
from walle_deploy.tasks.folders import open_folder
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.history import list_tasks, log_task
from walle_stream.errors import RefNotFoundError

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}


def run_list(options: argparse.Namespace) -> int:
    """Print scenarios, tasks and versions."""
    group = Group.parse(options.group)
    tasks = [
        task for name in options.scenario or group.scenarios() for task in list_tasks(group, name)
    ]
    if not print_json(options, {"group": group.address, "tasks": tasks}):
        for task in tasks:
            print_line(f"{task.task}  {task.commit[:SHORT]}")
            for version in task.versions:
                problem = f"  {version.problem.upper()} in the group" if version.problem else ""
                text = f"{version.who}: {version.subject}{problem}"
                print_line(f"  {version.name:<16}{version.when[:16]}  {text}")
        if not tasks:
            print_line(f"no tasks in {group.address}: walle task init SCENARIO/TASK makes one")
    return 0


def run_log(options: argparse.Namespace) -> int:
    """Print commits, newest first."""
    if options.ref is None:
        with open_folder(Path()) as here:
            ref, group = here.ref, here.group
    else:
        ref, group = TaskRef.parse(options.ref), Group.parse(options.group)
    entries = log_task(group, ref, options.count)
    if not print_json(options, {"ref": str(ref), "commits": entries}):
        for entry in entries:
            print_line(f"{entry.commit[:SHORT]}  {entry.when[:16]}  {entry.who}: {entry.subject}")
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Print the differences: files, audiences and lines.

    Raises:
        RefNotFoundError: The number of tasks or versions is neither 0 nor 2.
    """
    match [TaskRef.parse(ref) for ref in options.refs]:
        case []:
            difference = diff_folder(Path())
        case [before, after]:
            difference = diff_versions(Group.parse(options.group), before, after)
        case _:
            raise RefNotFoundError(
                "expected two tasks or versions, or none within a task's folder: "
                f"{len(options.refs)} given"
            )
    if not print_json(options, difference):
        for change in (*difference.files, *difference.audiences):
            print_line(f"{_SIGNS[change.kind]} {_changed(change)}")
        sys.stdout.write(difference.patch)
    return 0


def run_build(options: argparse.Namespace) -> int:
    """Build a version's files from its tag."""
    ref = TaskRef.parse(options.file)
    built = build_version(Group.parse(options.group), ref, options.python)
    folder = options.output or Path()
    write_version(built, folder)
    facts = {"ref": str(ref), "commit": built.commit, "folder": str(folder), "files": built.files}
    if not print_json(options, facts):
        package = built.files.shared[0]
        name = Path(package.target).name
        print_line(f"made {folder / name} from commit {built.commit[:SHORT]}")
        print_line(f"  sha256 {package.sha256}, {package.size_bytes} bytes")
        count = sum(map(len, built.files.exclusive.values()))
        if count:
            print_line(
                f"  {count} exclusive files of {len(built.files.exclusive)} devices and users"
            )
    return 0


def _changed(change: Change) -> str:
    if not change.audience:
        return change.path
    who = (
        change.audience if change.audience.startswith(USER_PREFIX) else f"device {change.audience}"
    )
    return f"{change.resource!r} of {who}"
