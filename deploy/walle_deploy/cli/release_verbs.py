"""What the sub-commands of ``walle release`` do."""

import argparse
import sys
import time
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live

from walle_deploy.cli.release_options import given_store, who
from walle_deploy.cli.release_view import detail, overview, shown_time
from walle_deploy.release.audit import read_entry
from walle_deploy.release.desk import ReleaseDesk, find_release
from walle_deploy.release.loading import load_release
from walle_deploy.release.progress import Progress, describe
from walle_deploy.release.proof import verify
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.rows import AuditHead, StoredRelease
from walle_stream.errors import ReleaseStateError


def run_create(options: argparse.Namespace) -> int:
    """Begin a release.

    Args:
        options: As parsed.
    """
    release = load_release(options.file)
    with given_store(options) as store:
        desk = ReleaseDesk(store, who(options))
        return _changed(
            options, store, desk.create(release, options.why, supersede=options.supersede)
        )


def run_pause(options: argparse.Namespace) -> int:
    """Stop the progress of a release.

    Args:
        options: As parsed.
    """
    with given_store(options) as store:
        desk = ReleaseDesk(store, who(options))
        return _changed(options, store, desk.pause(options.release, options.why, options.revision))


def run_resume(options: argparse.Namespace) -> int:
    """Let a release go on.

    Args:
        options: As parsed.
    """
    with given_store(options) as store:
        desk = ReleaseDesk(store, who(options))
        return _changed(options, store, desk.resume(options.release, options.why, options.revision))


def run_rollback(options: argparse.Namespace) -> int:
    """Take a version back.

    Args:
        options: As parsed.
    """
    with given_store(options) as store:
        desk = ReleaseDesk(store, who(options))
        return _changed(
            options, store, desk.roll_back(options.release, options.why, options.revision)
        )


def run_status(options: argparse.Namespace) -> int:
    """Say where releases stand.

    Args:
        options: As parsed.
    """
    with given_store(options) as store:
        if options.release:
            found = [_look(store, options.release)]
        else:
            with store.reading() as transaction:
                found = [describe(transaction, each) for each in transaction.releases()]
    if options.json:
        for each in found:
            _say_json(each)
        return 0
    console = Console()
    if options.release:
        console.print(detail(found[0]))
    elif found:
        console.print(overview(found))
    else:
        console.print("no releases yet")
    return 0


def run_watch(options: argparse.Namespace) -> int:
    """Follow a release until it ends.

    Args:
        options: As parsed.

    Returns:
        0 when it is done.

    Raises:
        ReleaseStateError: It ended otherwise.
    """
    with given_store(options) as store:
        progress = _look(store, options.release)
        if options.json:
            progress = _follow_lines(options, store, progress)
        else:
            with Live(detail(progress), auto_refresh=False) as live:
                while progress.is_open:
                    time.sleep(options.every)
                    progress = _look(store, options.release)
                    live.update(detail(progress), refresh=True)
    if progress.stage != "done":
        raise ReleaseStateError(
            f"release {progress.release!r} is {progress.stage.replace('_', ' ')}: {progress.reason}"
        )
    return 0


def run_audit(options: argparse.Namespace) -> int:
    """Check the audit log, then print it.

    Args:
        options: As parsed.
    """
    expected = AuditHead(*options.expect) if options.expect else None
    with given_store(options) as store, store.reading() as transaction:
        proof = verify(transaction, expected)
        if options.release:
            find_release(transaction, options.release)
        entries = [] if options.head else transaction.audit(options.release)
    head = f"{proof.head.number}:{proof.head.hash}"
    if options.head:
        _say_json(proof.head) if options.json else _say(head)
        return 0
    for sealed in entries:
        if options.json:
            _say(msgspec.json.encode({"hash": sealed.hash, **_fields(sealed.text)}).decode())
            continue
        entry = read_entry(sealed)
        what = entry.release or f"{entry.task}@{entry.version}"
        stage = f" -> {entry.stage} {entry.percent:g} %" if entry.stage else ""
        why = f": {entry.why}" if entry.why else ""
        when = shown_time(entry.at_ms)
        _say(f"{entry.number:>6}  {when}  {entry.by}  {entry.action} {what}{stage}{why}")
    if not options.json:
        _say(f"the chain holds: {proof.head.number} entries, end {head}")
    return 0


def _follow_lines(options: argparse.Namespace, store: ReleaseStore, progress: Progress) -> Progress:
    _say_json(progress)
    while progress.is_open:
        time.sleep(options.every)
        before, progress = progress, _look(store, options.release)
        if progress != before:
            _say_json(progress)
    return progress


def _changed(options: argparse.Namespace, store: ReleaseStore, stored: StoredRelease) -> int:
    progress = _look(store, stored.release_id)
    if options.json:
        _say_json(progress)
        return 0
    paused = ", paused" if progress.is_paused else ""
    _say(
        f"release {progress.release}: {progress.task}@{progress.version}, "
        f"{progress.stage.replace('_', ' ')}{paused} (revision {progress.revision})"
    )
    return 0


def _look(store: ReleaseStore, name: str) -> Progress:
    with store.reading() as transaction:
        return describe(transaction, find_release(transaction, name))


def _fields(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def _say_json(value: object) -> None:
    _say(msgspec.json.encode(value).decode())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
