"""Objects as files in a folder, and the opening of any object store by its URL."""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

from walle_stream.errors import SpecFileError
from walle_stream.errors.extras import how_to_install
from walle_stream.ports import ObjectStore
from walle_stream.spec.paths import reached
from walle_stream.store.files import (
    flush_file,
    make_folder,
    placing,
    put_file,
    refusal,
    sync_folder,
)

_CHUNK_BYTES: Final = 2**20


def open_objects(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Open a folder (a path, ``file://``), or ``s3://``, ``gs://``, ``az://``; makes no request.

    ``options`` are obstore's own. Credentials come from the environment.

    Raises:
        SpecFileError: The URL is no address of a store, or the extra ``cluster`` is not installed.
        StoreError: A setting is missing in the environment.
    """
    try:
        reached(url)
    except ValueError as error:
        raise SpecFileError(f"object store: {error}") from error
    if "://" not in url:
        return FolderObjects(Path(url))
    if url.startswith("file:"):
        return FolderObjects(Path(url2pathname(urlsplit(url).path)))
    try:
        from walle_stream.store.buckets import BucketObjects  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SpecFileError(f"obstore is not installed: {how_to_install('cluster')}") from error
    return BucketObjects(url, options or {})


class FolderObjects(ObjectStore):
    """Files of a folder that every machine reaches, with names visible to all at once."""

    def __init__(self, folder: Path) -> None:
        """Keep the folder without reading it; the first put makes it."""
        self._folder = folder

    @property
    def place(self) -> str:  # noqa: D102 - inherited
        return str(self._folder)

    def put(self, name: str, source: Path) -> None:  # noqa: D102 - inherited
        with self._told(), placing(self._made(name)) as part:
            shutil.copyfile(source, part)
            flush_file(part)

    def create(self, name: str, content: bytes) -> bool:  # noqa: D102 - inherited
        with self._told():
            path = self._made(name)
            new = path.with_name(f".{uuid4().hex}")
            put_file(new, content)
            try:
                # readers never see an incomplete file
                path.hardlink_to(new)
            except FileExistsError:
                return False
            finally:
                new.unlink()
            sync_folder(path.parent)
            return True

    def get(self, name: str) -> Iterator[bytes]:  # noqa: D102 - inherited
        with self._told(may_lack=True), (self._folder / name).open("rb") as file:
            while part := file.read(_CHUNK_BYTES):
                yield part

    def read(self, name: str, start: int, size: int) -> bytes:  # noqa: D102 - inherited
        with self._told(may_lack=True), (self._folder / name).open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(size)

    def listed(self, folder: str) -> Mapping[str, int]:  # noqa: D102 - inherited
        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        found = {}
        with self._told():
            for parent, _, names in os.walk(self._folder / folder, onerror=refuse):
                for path in (Path(parent, name) for name in names):
                    with suppress(FileNotFoundError):
                        found[path.relative_to(self._folder).as_posix()] = path.stat().st_size
        return found

    def delete(self, names: Collection[str]) -> None:  # noqa: D102 - inherited
        with self._told():
            for path in (self._folder / name for name in names):
                path.unlink(missing_ok=True)
                with suppress(OSError):  # it is not empty
                    for parent in path.relative_to(self._folder).parents[:-1]:
                        (self._folder / parent).rmdir()

    def _made(self, name: str) -> Path:
        path = self._folder / name
        make_folder(path.parent)
        return path

    @contextmanager
    def _told(self, *, may_lack: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if may_lack and isinstance(error, FileNotFoundError):
                raise
            raise refusal(
                error,
                f"{self._folder} cannot be used: {error}: give a folder with free space "
                "to which every machine may write",
            ) from error
