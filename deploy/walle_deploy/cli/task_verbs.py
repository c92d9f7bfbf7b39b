"""What the verbs of ``walle task`` print: a few lines for people, or one JSON object."""

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.building import build_version, write_version
from walle_deploy.tasks.checkouts import checkout
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.history import Change, diff_versions, list_tasks, log_task
from walle_deploy.tasks.mirrors import open_mirror
from walle_deploy.tasks.starting import checkout_task, init_task
from walle_deploy.tasks.tagging import tag_version
from walle_deploy.tasks.trials import try_task

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
_SHORT: Final = 12


def run_init(options: argparse.Namespace) -> int:
    """Make a task and say where its files are."""
    ref, group = TaskRef.parse(options.ref), Group.parse(options.group)
    made = init_task(group, ref, options.folder or Path(ref.task))
    facts = {"ref": str(ref), "folder": str(made.folder), "commit": made.commit}
    if not _as_json(options, facts):
        shown = shlex.quote(str(made.folder))
        _print(f"made {ref} in {group.url(ref.scenario)}, its files in {shown}")
        _print(f"test it:   walle task test {shown}")
        _print(f"commit:    walle task commit -m 'What changed' {shown}")
        _print(f"a version: walle task tag v1 {shown}")
    return 0


def run_checkout(options: argparse.Namespace) -> int:
    """Bring a task or version into a folder."""
    ref = TaskRef.parse(options.ref)
    made = checkout_task(Group.parse(options.group), ref, options.folder or Path(ref.task))
    facts = {"ref": str(ref), "folder": str(made.folder), "commit": made.commit}
    if not _as_json(options, facts):
        _print(f"{made.folder} is at {ref}, commit {made.commit[:_SHORT]}")
    return 0


def run_commit(options: argparse.Namespace) -> int:
    """Commit a folder and push it."""
    done = commit_folder(options.folder, options.message, rebase=options.rebase)
    if not _as_json(options, msgspec.to_builtins(done) | {"ref": str(done.ref)}):
        _say_mended(done.mended)
        if not done.files:
            _print(f"{done.ref}: nothing to commit, at {done.commit[:_SHORT]}")
        else:
            top = ", on top of others' commits" if done.is_rebased else ""
            _print(f"{done.ref}: committed {len(done.files)} files as {done.commit[:_SHORT]}{top}")
            for name in done.files:
                _print(f"  {name}")
    return 0


def run_tag(options: argparse.Namespace) -> int:
    """Make a version."""
    done = tag_version(options.folder, options.version, options.message)
    if not _as_json(options, msgspec.to_builtins(done) | {"ref": str(done.ref)}):
        _say_mended(done.mended)
        _print(f"made the version {done.ref} of commit {done.commit[:_SHORT]}")
        _print(f"build it: walle task build {done.ref} -o DIR")
    return 0


def run_test(options: argparse.Namespace) -> int:
    """Try a folder's task, or one of the group; 1 when its tests fail."""
    folder = Path(options.what)
    if folder.is_dir():
        return _try(options, folder)
    ref = TaskRef.parse(options.what)
    with TemporaryDirectory(prefix="walle-task-") as made:
        with open_mirror(Group.parse(options.group), ref.scenario) as mirror:
            source, _ = checkout(mirror, mirror.commit(ref), str(ref))
            # tests may write; the cache stays as it is
            copy = shutil.copytree(source, Path(made) / ref.task)
        return _try(options, copy)


def run_list(options: argparse.Namespace) -> int:
    """Print scenarios, tasks and versions."""
    group = Group.parse(options.group)
    tasks = [
        each for name in options.scenario or group.scenarios() for each in list_tasks(group, name)
    ]
    if not _as_json(options, {"group": group.address, "tasks": tasks}):
        for task in tasks:
            _print(f"{task.task}  {task.commit[:_SHORT]}")
            for each in task.versions:
                _print(f"  {each.name:<16}{each.when[:16]}  {each.who}: {each.subject}")
        if not tasks:
            _print(f"no tasks in {group.address}: walle task init SCENARIO/TASK makes one")
    return 0


def run_log(options: argparse.Namespace) -> int:
    """Print commits, the newest first."""
    ref = TaskRef.parse(options.ref)
    entries = log_task(Group.parse(options.group), ref, options.count)
    if not _as_json(options, {"ref": str(ref), "commits": entries}):
        for each in entries:
            _print(f"{each.commit[:_SHORT]}  {each.when[:16]}  {each.who}: {each.subject}")
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs: files, who gets which, the lines."""
    before, after = TaskRef.parse(options.before), TaskRef.parse(options.after)
    found = diff_versions(Group.parse(options.group), before, after)
    if not _as_json(options, found):
        for change in (*found.files, *found.audiences):
            _print(f"{_SIGNS[change.kind]} {_changed(change)}")
        sys.stdout.write(found.patch)
    return 0


def run_build(options: argparse.Namespace) -> int:
    """Build a version's files from its tag."""
    ref = TaskRef.parse(options.file)
    built = build_version(Group.parse(options.group), ref, options.python)
    folder = options.output or Path()
    write_version(built, folder)
    facts = {"ref": str(ref), "commit": built.commit, "folder": str(folder), "files": built.files}
    if not _as_json(options, facts):
        package = built.files.shared[0]
        name = Path(package.target).name
        _print(f"made {folder / name} from commit {built.commit[:_SHORT]}")
        _print(f"  sha256 {package.sha256}, {package.size_bytes} bytes")
        count = sum(map(len, built.files.exclusive.values()))
        if count:
            _print(f"  {count} exclusive files of {len(built.files.exclusive)} devices and users")
    return 0


def _try(options: argparse.Namespace, folder: Path) -> int:
    trial = try_task(folder)
    if not _as_json(options, msgspec.to_builtins(trial) | {"good": trial.is_good}):
        if not trial.is_good:
            sys.stdout.write(trial.output)
        if trial.features is not None:
            _print(f"{trial.task}: the sample gives {trial.features} features")
        _print(f"{trial.task}: tests {trial.tests}")
    return 0 if trial.is_good else 1


def _changed(change: Change) -> str:
    if not change.audience:
        return change.path
    who = change.audience if change.audience.startswith("user:") else f"device {change.audience}"
    return f"{change.resource!r} of {who}"


def _say_mended(text: str) -> None:
    if text:
        _print(f"finished first: {text}")


def _as_json(options: argparse.Namespace, facts: Any) -> bool:
    if options.json:
        _print(msgspec.json.encode(facts).decode())
    return bool(options.json)


def _print(line: str) -> None:
    sys.stdout.write(line + os.linesep)
