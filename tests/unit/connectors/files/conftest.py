"""Small files and the sources over them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from walle_connectors.files import FilesModel, FilesSource
from walle_stream.ports import SourceBatch
from walle_stream.testing.source_log import read_out

VIEW = [{"kind": "exposure", "page": "'feed'"}]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., FilesSource]:
    """Return a function that writes a file and opens a definition over it."""

    def make_source(content: str | bytes, **keys: Any) -> FilesSource:
        format_ = keys.setdefault("format", "csv")
        path = keys.setdefault("path", tmp_path / f"rows.{format_}")
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        if format_ == "csv":
            keys.setdefault("columns", {"t": "int"})
        keys = {"device": "d", "time": "t", "events": VIEW} | keys
        return FilesSource(FilesModel.model_validate(keys))

    return make_source


@pytest.fixture
def read() -> Callable[..., list[SourceBatch]]:
    """Return a function that reads a source to its end, as one partition."""

    def read_source(source: FilesSource, **keys: Any) -> list[SourceBatch]:
        given = {"offsets": {}, "partition_count": 1, "batch_events": 1_000} | keys
        return read_out(source.open(**given))

    return read_source
