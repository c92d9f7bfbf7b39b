"""What the sub-commands of ``walle release`` do that change a release."""

import argparse
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from walle_deploy.cli.release_file import load_whole_release
from walle_deploy.cli.release_options import given_store, look, say, say_json, who
from walle_deploy.model.names import TaskRef
from walle_deploy.release.audit import read_entry
from walle_deploy.release.desk import ReleaseDesk, find_release
from walle_deploy.release.progress import Progress
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.rows import StoredRelease
from walle_stream.errors import ConflictError, RefNotFoundError

_UNSEEN_MS: Final = 10_000
"""Who advances so soon after somebody else may not have seen that one."""


def run_create(options: argparse.Namespace) -> int:
    """Begin a release."""
    release = load_whole_release(options.file)
    return _change(
        options, lambda desk: desk.create(release, options.why, supersede=options.supersede)
    )


def run_adopt(options: argparse.Namespace) -> int:
    """Say which version devices have already.

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
    """Stop the progress of a release."""
    return _change(options, lambda desk: desk.pause(options.release, options.why, options.revision))


def run_resume(options: argparse.Namespace) -> int:
    """Let a release go on."""
    return _change(
        options, lambda desk: desk.resume(options.release, options.why, options.revision)
    )


def run_advance(options: argparse.Namespace) -> int:
    """Begin the next step of a release.

    Raises:
        ConflictError: Somebody else began a step just now, or changes it at this moment.
    """
    with given_store(options) as store:
        seen = options.revision
        if seen is None:
            seen = _seen_revision(store, options.release)
        stored = ReleaseDesk(store, who(options)).advance(options.release, options.why, seen)
        progress = look(store, stored.release_id)
    return _say_where(options, progress)


def run_rollback(options: argparse.Namespace) -> int:
    """Take a version back."""
    return _change(
        options, lambda desk: desk.roll_back(options.release, options.why, options.revision)
    )


def _seen_revision(store: ReleaseStore, release: str) -> int:
    # of two who advance at once each means one step
    with store.reading() as reading:
        stored, now_ms = find_release(reading, release), reading.now_ms()
        newest = map(read_entry, reversed(reading.audit(release)))
        for entry in takewhile(lambda each: now_ms - each.at_ms < _UNSEEN_MS, newest):
            if entry.action == "advance":
                raise ConflictError(
                    f"{entry.by} advanced release {release!r} {(now_ms - entry.at_ms) / 1_000:.1f} "
                    f"s ago ({entry.stage}, {entry.percent:g} %): once more with --revision "
                    f"{stored.revision}, if you mean the step after what is there now"
                )
    return stored.revision


def _change(options: argparse.Namespace, change: Callable[[ReleaseDesk], StoredRelease]) -> int:
    with given_store(options) as store:
        stored = change(ReleaseDesk(store, who(options)))
        progress = look(store, stored.release_id)
    return _say_where(options, progress)


def _say_where(options: argparse.Namespace, progress: Progress) -> int:
    if options.json:
        say_json(progress)
        return 0
    paused = ", paused" if progress.is_paused else ""
    say(
        f"release {progress.release}: {progress.task}@{progress.version}, "
        f"{progress.stage.replace('_', ' ')}{paused} (revision {progress.revision})"
    )
    return 0
