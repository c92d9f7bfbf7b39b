"""What the sub-commands of ``walle release`` do that change a release."""

import argparse
from collections.abc import Callable

from walle_deploy.cli.release_file import load_whole_release
from walle_deploy.cli.release_options import given_store, look, say, say_json, who
from walle_deploy.model.names import TaskRef
from walle_deploy.release.desk import ReleaseDesk
from walle_deploy.store.rows import StoredRelease
from walle_stream.errors import RefNotFoundError


def run_create(options: argparse.Namespace) -> int:
    """Begin a release.

    Args:
        options: As parsed.
    """
    release = load_whole_release(options.file)
    return _change(
        options, lambda desk: desk.create(release, options.why, supersede=options.supersede)
    )


def run_adopt(options: argparse.Namespace) -> int:
    """Say which version devices have already.

    Args:
        options: As parsed.

    Raises:
        RefNotFoundError: It is none, or was not published.
        ConflictError: The task has a stable version, or a release.
    """
    ref = TaskRef.parse(options.ref)
    if not ref.version:
        raise RefNotFoundError(f"{options.ref}: names no version: expected SCENARIO/TASK@VERSION")
    with given_store(options) as store:
        ReleaseDesk(store, who(options)).adopt(ref.name, ref.version, options.why)
    if options.json:
        say_json({"task": ref.name, "stable": ref.version})
    else:
        say(f"{ref.name}: {ref.version} is stable: devices that no release takes in get it")
    return 0


def run_pause(options: argparse.Namespace) -> int:
    """Stop the progress of a release.

    Args:
        options: As parsed.
    """
    return _change(options, lambda desk: desk.pause(options.release, options.why, options.revision))


def run_resume(options: argparse.Namespace) -> int:
    """Let a release go on.

    Args:
        options: As parsed.
    """
    return _change(
        options, lambda desk: desk.resume(options.release, options.why, options.revision)
    )


def run_advance(options: argparse.Namespace) -> int:
    """Begin the next step of a release.

    Args:
        options: As parsed.
    """
    return _change(
        options, lambda desk: desk.advance(options.release, options.why, options.revision)
    )


def run_rollback(options: argparse.Namespace) -> int:
    """Take a version back.

    Args:
        options: As parsed.
    """
    return _change(
        options, lambda desk: desk.roll_back(options.release, options.why, options.revision)
    )


def _change(options: argparse.Namespace, change: Callable[[ReleaseDesk], StoredRelease]) -> int:
    with given_store(options) as store:
        stored = change(ReleaseDesk(store, who(options)))
        progress = look(store, stored.release_id)
    if options.json:
        say_json(progress)
        return 0
    paused = ", paused" if progress.is_paused else ""
    say(
        f"release {progress.release}: {progress.task}@{progress.version}, "
        f"{progress.stage.replace('_', ' ')}{paused} (revision {progress.revision})"
    )
    return 0
