"""Loads definitions: files and overrides in, validated models out.

Everything that is wrong ends as one ``SpecFileError`` line with its place.
"""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from walle_stream.errors import SpecFileError
from walle_stream.spec.models import PathMarker, Pipeline, Task, TaskReference
from walle_stream.spec.nodes import Document, Key, format_key, parse_scalar, read_documents

API_VERSION: Final = "walle/v1"
"""What ``apiVersion`` must say."""

_KINDS: Final[dict[str, type[BaseModel]]] = {"Pipeline": Pipeline, "Task": Task}
_OVERRIDE_DEPTH: Final = 20


class LoadedPipeline(BaseModel, frozen=True, arbitrary_types_allowed=True):
    """A checked pipeline with its tasks."""

    pipeline: Pipeline
    tasks: tuple[Task, ...]
    source: Any
    """The connector's model of ``spec.source``."""
    tunnel: Any
    """The connector's model of ``spec.tunnel``."""
    file: Path
    masked_values: frozenset[str]
    """Values that came from the environment: never to be logged."""


def load_pipeline(
    file: Path,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    connector_models: Mapping[str, type[BaseModel]] | None = None,
) -> LoadedPipeline:
    """Load a pipeline and the tasks it names.

    Args:
        file: The YAML file.
        overrides: ``a.b=c``, applied in order.
        environ: For ``${VAR}``.
        connector_models: For each connector the model of its keys.

    Raises:
        SpecFileError: Something is wrong; the message names the place.
    """
    models = connector_models or {}
    documents = read_documents(file, environ)
    found = [document for document in documents if _kind(document) == "Pipeline"]
    if len(found) != 1:
        raise documents[0].error((), f"expected one Pipeline in the file, found {len(found)}")
    document = found[0]
    overridden = [_override(document, text) for text in overrides]
    _resolve_paths(document, Pipeline, (), file.parent, overridden)
    pipeline = _validate(document, Pipeline)
    source = _connector(document, "source", pipeline.spec.source, models, file, overridden)
    tunnel = _connector(document, "tunnel", pipeline.spec.tunnel, models, file, overridden)
    tasks = _tasks(document, documents, pipeline, file, environ)
    masked = frozenset().union(*(each.masked for each in documents))
    return LoadedPipeline(
        pipeline=pipeline,
        tasks=tasks,
        source=source,
        tunnel=tunnel,
        file=file,
        masked_values=masked,
    )


def load_task(file: Path, environ: Mapping[str, str] = os.environ) -> Task | None:
    """Load a file that holds one task and nothing else.

    Args:
        file: The YAML file.
        environ: For ``${VAR}``.

    Returns:
        The task, or None when the file holds a pipeline.

    Raises:
        SpecFileError: Something is wrong.
    """
    documents = read_documents(file, environ)
    kinds = [_kind(document) for document in documents]
    if kinds != ["Task"]:
        return None
    _resolve_paths(documents[0], Task, (), file.parent, [])
    return _validate(documents[0], Task)


def _kind(document: Document) -> str:
    value = document.value
    if not isinstance(value, dict):
        raise document.error((), f"expected a mapping, found {_name(value)}")
    for key, allowed in (("apiVersion", [API_VERSION]), ("kind", sorted(_KINDS))):
        if key not in value:
            raise document.error((), f"missing key {key!r}")
        if value[key] not in allowed:
            raise document.error(
                (key,), f"unknown {key} {value[key]!r}{_suggest(str(value[key]), allowed)}"
            )
    return str(value["kind"])


def _tasks(
    document: Document,
    documents: list[Document],
    pipeline: Pipeline,
    file: Path,
    environ: Mapping[str, str],
) -> tuple[Task, ...]:
    defined: dict[str, Task] = {}
    for other in documents:
        if _kind(other) == "Task":
            _resolve_paths(other, Task, (), file.parent, [])
            task = _validate(other, Task)
            name = task.metadata.name
            if name in defined:
                raise other.error(("metadata", "name"), f"the task {name!r} is defined twice")
            defined[name] = task
    tasks: dict[str, Task] = {}
    for index, reference in enumerate(pipeline.spec.tasks):
        task = _refer(document, index, reference, defined, environ)
        if task.metadata.name in tasks:
            raise document.error(
                ("spec", "tasks", index), f"the task {task.metadata.name!r} stands here twice"
            )
        tasks[task.metadata.name] = task
    return tuple(tasks.values())


def _refer(
    document: Document,
    index: int,
    reference: TaskReference,
    defined: Mapping[str, Task],
    environ: Mapping[str, str],
) -> Task:
    key: Key = ("spec", "tasks", index)
    if (reference.task is None) == (reference.file is None):
        raise document.error(key, "expected either 'task' (a name) or 'file' (a path)")
    if reference.file is not None:
        task = load_task(reference.file, environ)
        if task is None:
            raise document.error((*key, "file"), f"{reference.file} does not hold one Task")
        return task
    name = str(reference.task)
    if name not in defined:
        raise document.error(
            (*key, "task"), f"there is no Task {name!r} in the file{_suggest(name, defined)}"
        )
    return defined[name]


def _connector(
    document: Document,
    part: str,
    spec: BaseModel,
    models: Mapping[str, type[BaseModel]],
    file: Path,
    overridden: list[Key],
) -> Any:
    name = str(spec.connector)  # type: ignore[attr-defined]
    try:
        model = models[name]
    except KeyError:
        raise document.error(
            ("spec", part, "connector"), f"there is no connector {name!r}{_suggest(name, models)}"
        ) from None
    _resolve_paths(document, model, ("spec", part), file.parent, overridden)
    raw = document.value["spec"].get(part) or {}
    known = {"connector"} | ({"compression", "outbox"} if part == "tunnel" else set())
    own = {key: value for key, value in raw.items() if key not in known}
    return _validate(document, model, ("spec", part), own)


# Overrides and paths


def _override(document: Document, text: str) -> Key:
    dotted, separator, value = text.partition("=")
    if not separator or not dotted:
        raise SpecFileError(f"--set: expected a.b=c, found {text!r}", "--set")
    key: Key = tuple(int(part) if part.isdigit() else part for part in dotted.split("."))
    if key[0] not in {"spec", "metadata"} or len(key) > _OVERRIDE_DEPTH:
        raise SpecFileError(
            f"--set: {dotted!r} must begin with spec. or metadata."
            f"{_suggest(str(key[0]), ['spec', 'metadata'])}",
            "--set",
        )
    target = document.value
    for index, part in enumerate(key[:-1]):
        if isinstance(target, dict) and isinstance(part, str):
            target = target.setdefault(part, {})
        elif isinstance(target, list) and isinstance(part, int) and part < len(target):
            target = target[part]
        else:
            place = format_key(key[: index + 1])
            raise SpecFileError(f"--set: there is no {place} to set {dotted!r} in", "--set")
    last = key[-1]
    if isinstance(target, dict):
        target[str(last)] = parse_scalar(value)
    elif isinstance(target, list) and isinstance(last, int) and last < len(target):
        target[last] = parse_scalar(value)
    else:
        raise SpecFileError(f"--set: there is no {format_key(key)}", "--set")
    for places in (document.places, document.key_places):
        below = [known for known in places if known[: len(key)] == key]
        for known in below:
            del places[known]
        places[key] = (0, 0)
    return key


def _resolve_paths(
    document: Document, model: type[BaseModel], base: Key, folder: Path, overridden: list[Key]
) -> None:
    value = document.value
    for part in base:
        value = value.get(part) if isinstance(value, dict) else None
    _resolve(value, model, base, folder, overridden)


def _resolve(
    value: Any, model: type[BaseModel], base: Key, folder: Path, overridden: list[Key]
) -> None:
    if not isinstance(value, dict):
        return
    for name, field in model.model_fields.items():
        alias = field.alias or name
        if alias not in value:
            continue
        found = value[alias]
        if _is_path(field.annotation, field.metadata) and isinstance(found, str):
            is_overridden = (*base, alias) in overridden
            value[alias] = str(Path(found) if is_overridden else folder / found)
        for inner in _models(field.annotation):
            items = found if isinstance(found, list) else [found]
            for item in items:
                _resolve(item, inner, (*base, alias), folder, overridden)


def _is_path(annotation: Any, metadata: Sequence[Any]) -> bool:
    if any(isinstance(item, PathMarker) for item in metadata):
        return True
    return any(
        isinstance(item, PathMarker)
        for part in get_args(annotation)
        for item in getattr(part, "__metadata__", ())
    )


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


# Errors


def _validate[M: BaseModel](
    document: Document, model: type[M], base: Key = (), value: Any = None
) -> M:
    try:
        return model.model_validate(document.value if value is None else value)
    except ValidationError as error:
        details = error.errors()
        # a list whose item was refused is reported as too short as well: keep the item alone
        details = [
            detail
            for detail in details
            if not any(
                len(other["loc"]) > len(detail["loc"])
                and other["loc"][: len(detail["loc"])] == detail["loc"]
                for other in details
            )
        ]
        # a missing key is often the other half of a misspelt one: that comes first
        details.sort(key=lambda detail: detail["type"] == "missing")
        messages = [_explain(document, model, base, detail) for detail in details]
        wrong = [
            message
            for message, detail in zip(messages, details, strict=True)
            if detail["type"] != "missing"
        ]
        first = min(wrong or messages, key=lambda found: (found.line, found.column))
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        raise SpecFileError(first.message + more, first.file, first.line, first.column) from error


def _explain(
    document: Document, model: type[BaseModel], base: Key, detail: ErrorDetails
) -> SpecFileError:
    key: Key = (*base, *detail["loc"])
    kind, found = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        name = str(key[-1])
        known = _known_keys(model, detail["loc"][:-1])
        message = f"unknown key {name!r}{_suggest(name, known)}"
    elif kind == "missing":
        message = f"missing key {str(key[-1])!r}"
    elif kind == "value_error":
        message = detail["msg"].removeprefix("Value error, ")
    else:
        message = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, found {_name(found)}"
    error = document.error(key, message, is_key=kind in {"extra_forbidden", "missing"})
    if error.line == 0:
        return SpecFileError(f"--set: {format_key(key)}: {message}", "--set")
    return error


def _known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    current: list[type[BaseModel]] = [model]
    for part in location:
        if isinstance(part, str):
            current = [
                inner
                for each in current
                for name, field in each.model_fields.items()
                if part in {field.alias, name}
                for inner in _models(field.annotation)
            ]
    return [field.alias or name for each in current for name, field in each.model_fields.items()]


def _suggest(name: str, known: Any) -> str:
    names = sorted(str(each) for each in known)
    close = get_close_matches(name, names, 1, 0.5)
    if close:
        return f", did you mean {close[0]!r}?"
    return f": allowed are {', '.join(names)}" if names else ""


def _name(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - fits a line
