"""What the sub-commands of ``walle release`` do that change a release."""

import argparse
from typing import Any

from walle_deploy.cli.output import print_json, print_line
from walle_deploy.cli.release_api import given_releases, path_of
from walle_deploy.cli.release_file import load_whole_release
from walle_deploy.model.names import TaskRef
from walle_deploy.service.operating import RELEASES_PATH, STABLE_PATH
from walle_stream.errors import RefNotFoundError


def run_create(options: argparse.Namespace) -> int:
    """Begin a release."""
    release = load_whole_release(options.file)
    definition = release.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _change(options, RELEASES_PATH, definition=definition, supersede=options.supersede)


def run_adopt(options: argparse.Namespace) -> int:
    """Say which version devices have already.

    Raises:
        RefNotFoundError: It is none.
    """
    ref = TaskRef.parse(options.ref)
    if not ref.version:
        raise RefNotFoundError(f"{options.ref}: names no version: expected SCENARIO/TASK@VERSION")
    return _change(options, STABLE_PATH, task=ref.name, version=ref.version)


def run_change(options: argparse.Namespace) -> int:
    """Pause, resume, approve, advance or roll back a release."""
    return _change(options, path_of(options.release, options.verb), revision=options.revision)


def _change(options: argparse.Namespace, path: str, **wanted: Any) -> int:
    with given_releases(options) as releases:
        progress = releases.change(
            path, why=" ".join(options.why.split()), by=options.by or "", **wanted
        )
    if progress is None:
        task, version = wanted["task"], wanted["version"]
        if not print_json(options, {"task": task, "stable": version}):
            print_line(f"{task}: {version} is stable: devices that no release takes in get it")
    elif not print_json(options, progress):
        paused = ", paused" if progress.is_paused else ""
        print_line(
            f"release {progress.release}: {progress.task}@{progress.version}, "
            f"{progress.stage.replace('_', ' ')}{paused} (revision {progress.revision})"
        )
    return 0
