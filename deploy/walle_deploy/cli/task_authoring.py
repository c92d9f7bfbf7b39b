"""The work and output of ``walle task init``, ``checkout``, ``commit``, ``tag`` and ``test``."""

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from walle_deploy.cli.output import SHORT, print_json, print_line
from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.checkouts import checkout
from walle_deploy.tasks.cloning import checkout_task, init_task
from walle_deploy.tasks.committing import commit_folder
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.mirrors import open_mirror
from walle_deploy.tasks.tagging import tag_version
from walle_deploy.tasks.trials import try_task


def run_init(options: argparse.Namespace) -> int:
    """Make a task and print the folder of its files."""
    ref, group = TaskRef.parse(options.ref), Group.parse(options.group)
    clone = init_task(group, ref, options.folder or Path(ref.task))
    facts: dict[str, object] = {"ref": str(ref), "folder": str(clone.folder)}
    facts |= {"commit": clone.commit, "is_found": clone.is_found}
    if not print_json(options, facts):
        shown = shlex.quote(str(clone.folder))
        where = f"{ref} in {group.url(ref.scenario)}"
        begun = f"you began {where} before" if clone.is_found else f"made {where}"
        print_line(f"{begun}, its files in {shown}")
        print_line(f"test it:   walle task test {shown}")
        print_line(f"commit:    walle task commit -m 'What changed' {shown}")
        print_line(f"a version: walle task tag v1 {shown}")
    return 0


def run_checkout(options: argparse.Namespace) -> int:
    """Put a task or version into a folder."""
    ref = TaskRef.parse(options.ref)
    clone = checkout_task(Group.parse(options.group), ref, options.folder or Path(ref.task))
    facts = {"ref": str(ref), "folder": str(clone.folder), "commit": clone.commit}
    if not print_json(options, facts):
        print_line(f"{clone.folder} is at {ref}, commit {clone.commit[:SHORT]}")
    return 0


def run_commit(options: argparse.Namespace) -> int:
    """Commit a folder and push it."""
    result = commit_folder(options.folder, options.message, rebase=options.rebase)
    if not print_json(options, msgspec.to_builtins(result) | {"ref": str(result.ref)}):
        _say_mended(result.mended)
        if not result.files:
            print_line(f"{result.ref}: nothing to commit, at {result.commit[:SHORT]}")
        else:
            top = ", on top of others' commits" if result.is_rebased else ""
            print_line(
                f"{result.ref}: committed {len(result.files)} files as {result.commit[:SHORT]}{top}"
            )
            for name in result.files:
                print_line(f"  {name}")
    return 0


def run_tag(options: argparse.Namespace) -> int:
    """Make a version."""
    result = tag_version(options.folder, options.version, options.message)
    if not print_json(options, msgspec.to_builtins(result) | {"ref": str(result.ref)}):
        _say_mended(result.mended)
        print_line(f"made the version {result.ref} of commit {result.commit[:SHORT]}")
        print_line(f"build it: walle task build {result.ref} -o DIR")
    return 0


def run_test(options: argparse.Namespace) -> int:
    """Try a folder's task, or a task of the group; return 1 if its tests fail."""
    folder = Path(options.what)
    if folder.is_dir():
        return _try(options, folder)
    ref = TaskRef.parse(options.what)
    with TemporaryDirectory(prefix="walle-task-") as temporary:
        with open_mirror(Group.parse(options.group), ref.scenario) as mirror:
            source, _ = checkout(mirror, mirror.commit(ref), str(ref))
            # tests may write, so they run in a copy and the cache stays unchanged
            copy = shutil.copytree(source, Path(temporary) / ref.task)
        return _try(options, copy)


def _try(options: argparse.Namespace, folder: Path) -> int:
    trial = try_task(folder)
    if not print_json(options, msgspec.to_builtins(trial) | {"good": trial.is_good}):
        if not trial.is_good:
            sys.stdout.write(trial.output)
        if trial.features is not None:
            print_line(f"{trial.task}: the sample gives {trial.features} features")
        print_line(f"{trial.task}: tests {trial.tests}")
    return 0 if trial.is_good else 1


def _say_mended(text: str) -> None:
    if text:
        print_line(f"finished first: {text}")
