"""``walle dead-letters``: list dead letters, and give their records to the source again."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from walle_stream.actors.rows.letter_rows import encode_letter
from walle_stream.app.queries.record_file import RecordFile
from walle_stream.app.queries.replay import (
    Mark,
    ReplayReport,
    Wanted,
    dead_letters,
    kept_letters,
    replay,
)
from walle_stream.app.resources import find_definition
from walle_stream.errors import SpecFileError
from walle_stream.ports import KeptLetter, RecordReturn
from walle_stream.spec.connectors import ConnectorModels, load_connector
from walle_stream.spec.loader import LoadedPipeline, UnreadPackage, load_pipeline
from walle_stream.store.datadir import DataDir
from walle_stream.store.replayed import ReplayedLetters, read_replayed

type _Loaded = LoadedPipeline[UnreadPackage]


def listing(options: argparse.Namespace) -> int:
    """Print the selected dead letters of a data directory."""
    loaded = _load(options)
    for letter in dead_letters(_data_dir(options, loaded)):
        if (
            options.route in {None, letter.route}
            and options.task in {None, letter.task}
            and options.device in {None, letter.device_id}
        ):
            if options.json:
                print(encode_letter(letter).decode())
            else:
                task = f" task {letter.task!r}" if letter.task else ""
                times = f" after {letter.attempts} attempts" if letter.attempts > 1 else ""
                reason = _one_line(letter.reason)
                print(f"{letter.route:<10}{letter.origin}{task}{times}: {reason}")
    return 0


def replaying(options: argparse.Namespace) -> int:
    """Replay the records of dead letters.

    Raises:
        SpecFileError: FILE is wrong or missing, or its connectors cannot do the request.
        WalleError: Letters, target or marks cannot be used; marked letters are replayed.
    """
    if options.file is None and (options.from_topic or not (options.to or options.dry_run)):
        raise SpecFileError(
            "walle dead-letters replay needs FILE, the pipeline, to know its topics; without it "
            "only --data-dir with --to OUT or --dry-run works"
        )
    loaded = _load(options)
    with ExitStack() as stack:
        letters, done, mark = _open_letters(stack, options, loaded)
        target = None if options.dry_run else _open_target(stack, options, loaded)
        waiting: list[str] = []
        is_file = isinstance(target, RecordFile)
        wanted = Wanted(
            pipeline=loaded.pipeline.metadata.name if loaded else "",
            route=options.route,
            task=options.task,
            device_id=options.device,
            limit=options.limit,
            is_again=options.again,
            takes_pages=options.to is not None,
        )
        # imported here, because the other commands have no progress
        from walle_stream.cli.render import count_progress  # noqa: PLC0415

        with count_progress("replayed", "letters") as on_progress:
            # a file is valid only when complete, so its letters are marked after its commit
            note: Mark = waiting.extend if is_file else mark
            report = replay(letters(), done, wanted, target, note, on_progress)
        if isinstance(target, RecordFile) and report.replayed:
            target.commit()
            mark(waiting)
    _show(options, report)
    return 0


def _load(options: argparse.Namespace) -> _Loaded | None:
    if options.file is None:
        return None
    return load_pipeline(
        find_definition(options.file),
        options.set,
        connector_models=ConnectorModels(),
        read_package=UnreadPackage.of_file,
    )


def _data_dir(options: argparse.Namespace, loaded: _Loaded | None) -> Path:
    path: Path | None = options.data_dir
    if loaded is None:
        return path or options.refuse("give FILE, a pipeline's YAML, or --data-dir")
    name = loaded.pipeline.metadata.name
    if path is None:
        return Path("walle-data") / name
    of = DataDir.open_read_only(path).meta.pipeline
    if of != name:
        raise SpecFileError(
            f"{path} belongs to pipeline {of!r}, but {loaded.file} defines {name!r}: give a file "
            "and a data directory of the same pipeline"
        )
    return path


def _open_letters(
    stack: ExitStack, options: argparse.Namespace, loaded: _Loaded | None
) -> tuple[Callable[[], Iterator[KeptLetter]], set[str], Mark]:
    if loaded is not None and options.from_topic:
        spec = loaded.pipeline.spec.dead_letters
        if spec is None:
            raise SpecFileError(f"{loaded.file}: has no spec.deadLetters to replay from")
        archive = _part(loaded, spec.connector, "open_archive", "spec.deadLetters")(
            loaded.dead_letters
        )
        stack.callback(archive.close)
        return archive.letters, archive.replayed(), archive.mark
    path = _data_dir(options, loaded)
    meta = DataDir.open_read_only(path).meta
    if loaded is not None and options.to is None and not options.dry_run:
        source = load_connector(loaded.pipeline.spec.source.connector).open(loaded.source)
        source.check_fingerprint(meta.source)
    if options.dry_run:
        return lambda: kept_letters(path), read_replayed(path), lambda _: None
    marks = stack.enter_context(ReplayedLetters.open(path))
    return lambda: kept_letters(path), marks.read(), marks.add


def _open_target(
    stack: ExitStack, options: argparse.Namespace, loaded: _Loaded | None
) -> RecordReturn:
    target: RecordReturn
    if options.to is not None:
        target = RecordFile(options.to)
    elif loaded is not None:
        connector = loaded.pipeline.spec.source.connector
        target = _part(loaded, connector, "open_return", "spec.source")(loaded.source)
    else:
        raise SpecFileError("walle dead-letters replay needs FILE or --to OUT")
    stack.callback(target.close)
    return target


def _part(loaded: _Loaded, connector: str, name: str, place: str) -> Callable[[Any], Any]:
    part: Callable[[Any], Any] | None = getattr(load_connector(connector), name, None)
    if part is None:
        raise SpecFileError(
            f"{loaded.file}: {place} has the connector {connector!r}, which cannot replay "
            "letters: write the records into a file with --to OUT"
        )
    return part


def _show(options: argparse.Namespace, report: ReplayReport) -> None:
    if options.json:
        fields = {**msgspec.structs.asdict(report), "dry_run": options.dry_run}
        print(msgspec.json.encode(fields).decode())
        return
    verb = "would be replayed" if options.dry_run else "replayed"
    print(f"{report.replayed:,} letters {verb}, {report.size_bytes:,} bytes")
    for reason, count in sorted(report.skipped.items(), key=lambda skip: (-skip[1], skip[0])):
        print(f"{count:,} left out: {reason}")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
