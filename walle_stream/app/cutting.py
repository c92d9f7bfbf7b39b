"""One-pass cutting of a source into one part per partition.

The parts of a cut lie in a folder named by their digest, and the manifest names this folder. The
manifest is replaced last, when all parts are on the disk. A killed cut therefore leaves the
previous parts, or none. Cutting the same file again makes the same folder, so nothing changes for
readers. For an object store the cut is made on the disk, then uploaded.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

import msgspec
from pydantic import BaseModel

from walle_stream.errors import (
    SourceError,
    SpecFileError,
    StoreFullError,
    StoreLockedError,
)
from walle_stream.ports import ObjectStore, Source, SourceBatch
from walle_stream.reading.parts.layout import MANIFEST, Frame, Manifest, Part, part_name, rules_of
from walle_stream.spec.connectors import ConnectorModels, load_connector, placing_of
from walle_stream.spec.loader import UnreadPackage, load_pipeline
from walle_stream.store.files import FULL_DISK, make_folder, put_file, sync_folder
from walle_stream.store.locks import try_lock
from walle_stream.store.objects import open_objects
from walle_stream.types import Placing, partition_of, placing_mark

FRAME_EVENTS: Final = 256
"""Approximate number of events of a partition in one frame."""

_WAITING_MAX_BYTES: Final = 32 * 2**20

type OnProgress = Callable[[float, int], None]
"""Called with the share of the source read so far, and the number of events."""


def cut_source(
    file: Path, overrides: Sequence[str], out: str | None, on_progress: OnProgress
) -> tuple[str, Manifest]:
    """Cut the source of a pipeline; blocks. The new parts replace the previous ones.

    ``out`` is a folder, or its URL in an object store (None: ``PATH.parts`` beside the source's
    file). Returns the place of the parts, and their manifest.

    Raises:
        SpecFileError: The definition is wrong, or its source is no file.
        SourceError: The source cannot be read to its end, or its parts cannot be written.
        StoreFullError: The disk is full; the incomplete parts are removed.
        StoreLockedError: Another process cuts into that folder.
        StoreError: The object store refuses the request, or is unreachable.
    """
    models, package = ConnectorModels(), UnreadPackage.of_file
    loaded = load_pipeline(file, overrides, connector_models=models, read_package=package)
    spec, model = loaded.pipeline.spec, loaded.source
    connector = load_connector(spec.source.connector)
    source: Source = connector.open(model)
    path = getattr(model, "path", None)
    if not isinstance(path, Path) or source.reads_apart:
        raise SpecFileError(
            f"{loaded.file}: spec.source is no single file: there is nothing to cut"
        )
    placing = placing_of(connector, load_connector(spec.tunnel.connector))
    out = out or str(path.with_name(f"{path.name}.parts"))
    count = spec.runtime.partitions
    if "://" not in out:
        return out, cut(source, model, Path(out), count, placing, on_progress)
    objects = open_objects(out)
    before = _cut_before(objects)  # also fails early if the store is unreachable
    with TemporaryDirectory(prefix="walle-parts-") as folder:

        def on_half(share: float, events: int) -> None:
            on_progress(share / 2, events)

        manifest = cut(source, model, Path(folder), count, placing, on_half)
        _send(Path(folder), manifest, objects, on_progress)
    if before is not None and before.digest != manifest.digest:
        objects.delete(objects.listed(before.digest))
    return out, manifest


def _cut_before(objects: ObjectStore) -> Manifest | None:
    try:
        return Manifest.read(objects)
    except SourceError:  # no manifest, or a damaged one
        return None


def _send(folder: Path, manifest: Manifest, objects: ObjectStore, on_progress: OnProgress) -> None:
    """Upload the parts in a folder to an object store, the manifest last."""
    rows, sent = sum(part.rows for part in manifest.parts), 0
    size = sum(part.size_bytes for part in manifest.parts)
    for number, part in enumerate(manifest.parts):
        name = f"{manifest.digest}/{part_name(number)}"
        objects.put(name, folder / name)
        sent += part.size_bytes
        on_progress((1 + sent / max(size, 1)) / 2, rows)
    objects.put(MANIFEST, folder / MANIFEST)


def cut(
    source: Source,
    model: BaseModel,
    out: Path,
    partition_count: int,
    placing: Placing = partition_of,
    on_progress: OnProgress = lambda _share, _events: None,
) -> Manifest:
    """Cut the source of a ``spec.source`` section; see ``cut_source``."""
    reader = source.open({}, partition_count, FRAME_EVENTS * partition_count, None, placing)
    events = 0
    with closing(reader), _new_folder(out) as new:
        writer = _Writer(new, partition_count)
        while not reader.is_done:
            for batch in reader.read():
                writer.add(batch)
                events += len(batch.events)
            on_progress(reader.progress, events)
        writer.write(is_last=True)
        folder = _named(new, writer.digest.hexdigest())
        manifest = Manifest(
            digest=folder.name,
            source=dict(source.fingerprint),
            rules=rules_of(model),
            placing=placing_mark(placing),
            parts=tuple(writer.parts),
        )
        put_file(out / MANIFEST, msgspec.json.encode(manifest) + b"\n")
        _remove_others(folder)
    return manifest


class _Writer:
    """Writer of the files of all parts, with one file open at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self.parts = [Part() for _ in range(count)]
        self.digest = blake2b(digest_size=16)
        self._folder = folder
        self._waiting: list[list[bytes]] = [[] for _ in self.parts]
        self._waiting_bytes = 0

    def add(self, batch: SourceBatch) -> None:
        frame, number = Frame.of(batch), batch.partition
        if not (frame.events or frame.rows or frame.raw_bytes):
            return
        data, part = frame.encode(number), self.parts[number]
        self.digest.update(b"%d " % number + data)
        self._waiting[number].append(data)
        self._waiting_bytes += len(data)
        part.rows += frame.rows
        part.size_bytes += len(data)
        if self._waiting_bytes > _WAITING_MAX_BYTES:
            self.write()

    def write(self, *, is_last: bool = False) -> None:
        self._waiting_bytes = 0
        for number, waiting in enumerate(self._waiting):
            with (self._folder / part_name(number)).open("ab") as file:
                file.write(b"".join(waiting))
                if is_last:
                    file.flush()
                    os.fsync(file.fileno())
            waiting.clear()
        if is_last:
            sync_folder(self._folder)


def _named(new: Path, digest: str) -> Path:
    """Move parts to the folder of their digest; existing parts have the same bytes."""
    folder = new.with_name(digest)
    make_folder(folder)
    for part in new.iterdir():
        part.replace(folder / part.name)
    sync_folder(folder)
    new.rmdir()
    return folder


def _remove_others(folder: Path) -> None:
    """Remove former parts, but not the folder that the manifest names."""
    for each in folder.parent.iterdir():
        # only folders of a cut: named by a digest, with nothing but parts in them
        is_ours = each.is_dir() and len(each.name) == len(folder.name) and each != folder
        if is_ours and all(one.suffix == ".part" for one in each.iterdir()):
            shutil.rmtree(each)


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Make a folder for parts, and remove it if it still exists at the end.

    Raises:
        SourceError: The folder cannot be written.
        StoreFullError: The disk is full.
        StoreLockedError: Another process writes to the folder.
    """
    try:
        make_folder(out)
        with (out / "LOCK").open("ab") as lock:
            if not try_lock(lock.fileno()):
                raise StoreLockedError(f"another walle partition writes to {out}: wait for its end")
            folder = out / uuid4().hex
            make_folder(folder)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except SourceError:
        raise  # the error of a missing file is also an OSError
    except OSError as error:
        if error.errno in FULL_DISK:
            raise StoreFullError(
                f"the disk of {out} is full: free some space, or name another folder with --to"
            ) from error
        raise SourceError(f"parts cannot be written to {out} ({error.strerror})") from error
