"""The sub-commands of ``walle release`` that ask a service or a store."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live

from walle_deploy.cli.output import print_json, print_line, write_json
from walle_deploy.cli.release_api import Releases, given_releases, path_of
from walle_deploy.cli.release_file import load_whole_release
from walle_deploy.cli.release_view import detail, overview, step_line
from walle_deploy.model.names import TaskRef
from walle_deploy.release.audit import AuditEntry, read_entry, shown_by
from walle_deploy.release.head import read_head, sign_head
from walle_deploy.release.progress import Progress, shown_time
from walle_deploy.release.verification import compare, need_head, verify_chain
from walle_deploy.service.operating import AUDIT_PATH, RELEASES_PATH, STABLE_PATH, AuditPage
from walle_deploy.store.rows import AuditHead, SealedEntry
from walle_stream.errors import (
    RefNotFoundError,
    ReleaseStateError,
    ServiceUnreachableError,
    SpecFileError,
)


def run_status(options: argparse.Namespace) -> int:
    """Print the state of one release, or of all."""
    with given_releases(options) as releases:
        if options.release:
            states = [releases.look(options.release)]
        else:
            states = releases.get(RELEASES_PATH, list[Progress])
    if options.json:
        for state in states:
            write_json(state)
        return 0
    console = Console()
    if options.release:
        console.print(detail(states[0]))
    elif states:
        console.print(overview(states))
    else:
        console.print("no releases yet")
    return 0


def run_watch(options: argparse.Namespace) -> int:
    """Follow a release until it ends.

    Returns:
        0 if the release is done.

    Raises:
        ReleaseStateError: The release ended otherwise.
    """
    with given_releases(options) as releases:
        progress = releases.look(options.release)
        console = Console()
        followed = _followed(options, releases, progress)
        if options.json:
            for progress in followed:
                write_json(progress)
        elif console.is_terminal:
            with Live(detail(progress), console=console, auto_refresh=False) as live:
                for progress in followed:
                    live.update(detail(progress), refresh=True)
        else:
            for progress in _steps(followed):
                print_line(step_line(progress))
            console.print(detail(progress))
    if progress.stage != "done":
        raise ReleaseStateError(
            f"release {progress.release!r} is {progress.stage.replace('_', ' ')}: {progress.reason}"
        )
    return 0


def run_audit(options: argparse.Namespace) -> int:
    """Check the audit log, then print it."""
    kept = _kept(options)
    with given_releases(options) as releases:
        entries, end = _whole_log(releases)
        if options.release:
            releases.look(options.release)
    if kept is not None:
        need_head(entries, kept)
        if options.against is not None:
            print_line(f"the chain contains the saved head, entry {kept.number}")
            return 0
    head = f"{end.number}:{end.hash}"
    if options.sign is not None:
        head = sign_head(end, options.sign)
    if options.head:
        write_json(end) if options.json and options.sign is None else print_line(head)
        return 0
    for sealed in entries:
        if options.release not in {"", sealed.release_id}:
            continue
        if options.json:
            fields = msgspec.json.decode(sealed.text, type=dict[str, Any])
            write_json({"hash": sealed.hash, **fields})
            continue
        entry = read_entry(sealed)
        what = entry.release or f"{entry.task}@{entry.version}"
        stage = f" -> {_reached(entry)}" if entry.stage else ""
        why = f": {entry.why}" if entry.why else ""
        when = shown_time(entry.at_ms)
        print_line(
            f"{entry.number:>6}  {when}  {shown_by(entry)}  {entry.action} {what}{stage}{why}"
        )
    if not options.json:
        print_line(f"the chain holds: {end.number} entries, end {head}")
    return 0


def _whole_log(releases: Releases) -> tuple[Sequence[SealedEntry], AuditHead]:
    page = releases.get(AUDIT_PATH, AuditPage)
    entries = [*page.entries]
    while page.kept is None and page.entries:
        page = releases.get(f"{AUDIT_PATH}?after={len(entries)}", AuditPage)
        entries += page.entries
    # a genuine service has verified each page, too
    verify_chain(entries, page.head)
    if page.kept is not None:
        compare(entries, page.kept)
    return entries, page.head


def _kept(options: argparse.Namespace) -> AuditHead | None:
    if options.against is not None:
        if options.keys is None:
            raise SpecFileError("--against: needs --keys of the head's signer")
        return read_head(options.against, options.keys)
    return AuditHead(*options.expect) if options.expect else None


def _reached(entry: AuditEntry) -> str:
    reached = f"{entry.stage} {entry.percent:g} %"
    if entry.stage != "done":
        return reached
    is_for_all = entry.stable == entry.version
    return reached + (
        ", as the stable version" if is_for_all else " of the devices that its policy admits"
    )


def _followed(
    options: argparse.Namespace, releases: Releases, progress: Progress
) -> Iterator[Progress]:
    """Yield the progress now and after each change, until the release ends."""
    yield progress
    is_away = False
    while progress.is_open:
        time.sleep(options.every)
        try:
            latest = releases.look(options.release)
        except ServiceUnreachableError as error:
            if not is_away:  # the release goes on without its watchers
                sys.stderr.write(f"walle: {error.message}; watching continues when it answers\n")
            is_away = True
            continue
        is_away = False
        if latest != progress:
            progress = latest
            yield progress


def _steps(every: Iterable[Progress]) -> Iterator[Progress]:
    shown = None
    for progress in every:
        if (progress.revision, progress.silent) != shown:
            shown = progress.revision, progress.silent
            yield progress


def run_create(options: argparse.Namespace) -> int:
    """Begin a release."""
    release = load_whole_release(options.file)
    definition = release.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _change(options, RELEASES_PATH, definition=definition, supersede=options.supersede)


def run_adopt(options: argparse.Namespace) -> int:
    """Set the version that devices already have.

    Raises:
        RefNotFoundError: The reference names no version.
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
            print_line(f"{task}: {version} is stable: devices that no release admits get it")
    elif not print_json(options, progress):
        paused = ", paused" if progress.is_paused else ""
        print_line(
            f"release {progress.release}: {progress.task}@{progress.version}, "
            f"{progress.stage.replace('_', ' ')}{paused} (revision {progress.revision})"
        )
    return 0
