"""A small pipeline file, whole or with one mistake."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from walle_stream.errors import SpecFileError
from walle_stream.spec.loader import LoadedPipeline, load_pipeline
from walle_stream.spec.paths import PathField
from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict


class EventPart(Strict):
    kind: str
    at: int = 0


class FileKeys(Strict):
    path: PathField
    rows: int = 1
    word: str = ""
    brokers: tuple[str, ...] = ()
    wait_ms: DurationMs = 0
    more: tuple[PathField, ...] = ()
    by_name: dict[str, PathField | None] = Field(default_factory=dict)
    events: tuple[EventPart, ...] = ()


class NoKeys(BaseModel):
    model_config = ConfigDict(extra="forbid")


MODELS = {"files": FileKeys, "embedded": NoKeys}
PIPELINE = """\
apiVersion: walle/v1
kind: Pipeline
metadata:
  name: demo
spec:
  source:
    connector: files
    path: feed.csv
  tasks:
    - task: visit
---
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  script: visit.py
  triggers:
    - sequence: [page_exit]
"""


def edited(old: str, new: str) -> str:
    assert old in PIPELINE
    return PIPELINE.replace(old, new, 1)


@pytest.fixture
def with_source() -> Callable[[str], str]:
    """Add a line to the source; it is line 9."""
    return lambda line: edited("  tasks:\n", f"    {line}\n  tasks:\n")


@pytest.fixture
def with_spec() -> Callable[[str], str]:
    """Add a line to the pipeline's spec; it is line 9."""
    return lambda line: edited("  tasks:\n", f"  {line}\n  tasks:\n")


@pytest.fixture
def text() -> str:
    """A pipeline without a mistake."""
    return PIPELINE


@pytest.fixture
def models() -> dict[str, type[BaseModel]]:
    return MODELS


@pytest.fixture
def edit() -> Callable[[str, str], str]:
    return edited


@pytest.fixture
def load(tmp_path) -> Callable[..., LoadedPipeline]:
    def load_text(definition: str, *overrides: str, **environ: str) -> LoadedPipeline:
        file = tmp_path / "p.yaml"
        file.write_text(definition, encoding="utf-8")
        return load_pipeline(file, overrides, environ, connector_models=MODELS)

    return load_text


@pytest.fixture
def refused(load, tmp_path) -> Callable[..., str]:
    """Return the one line; the error's attributes must say the same."""

    def line_of(*arguments: Any, **environ: str) -> str:
        with pytest.raises(SpecFileError) as caught:
            load(*arguments, **environ)
        error = caught.value
        assert len(str(error).splitlines()) == 1
        if error.line:
            assert str(error).startswith(f"{error.file}:{error.line}:{error.column}: ")
        return str(error).replace(f"{tmp_path}/", "")

    return line_of
