"""Models and paths at each location of a pydantic model, by the model's annotations.

The functions work on any pydantic model, so that connectors' models are treated
like our own. Place in the data flow: between ``loader`` and the models.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAliasType, get_args, get_origin

from pydantic import BaseModel

from walle_stream.spec.document import Document, Key
from walle_stream.spec.paths import PathMarker


def known_keys(model: type[BaseModel], location: Sequence[str | int] = ()) -> list[str]:
    """Return the YAML keys at a location of a model; indices are skipped."""
    models = models_at(model, location)
    return [alias for model in models for alias, _ in _fields(model)]


def models_at(model: type[BaseModel], location: Sequence[str | int]) -> list[type[BaseModel]]:
    """Return the models that can be at a location of a model; indices are skipped."""
    current: list[Any] = [model]
    for part in location:
        if isinstance(part, str):
            current = [inner for outer in current for inner in _inside(outer, part)]
    return [model for part_ in current for model in _models_in(part_)]


def _inside(annotation: Any, part: str) -> Iterator[Any]:
    """Yield the annotations of the values at a key."""
    for option, _ in _options(annotation):
        arguments = get_args(option)
        if isinstance(option, type) and issubclass(option, BaseModel):
            yield from (inner for alias, inner in _fields(option) if alias == part)
            if part in _tags(option):
                yield option  # pydantic puts the tag of a union's part into the location
        elif get_origin(option) is dict:
            yield arguments[1]  # for any name
        else:
            for argument in arguments:
                yield from _inside(argument, part)


def resolve_paths(
    document: Document, model: type[BaseModel], base: Key, value: Any, folder: Path
) -> None:
    """Make the paths in a value relative to the process, in place.

    Paths of an override are so already, and stay unchanged. ``base`` is the value's place. The
    file's paths are relative to ``folder``.
    """
    if isinstance(value, dict):
        for alias, annotation in _fields(model):
            if alias in value:
                key = (*base, alias)
                value[alias] = _resolved(document, annotation, key, value[alias], folder)


def _resolved(document: Document, annotation: Any, key: Key, value: Any, folder: Path) -> Any:
    options = list(_options(annotation))
    if isinstance(value, str):
        is_path = any(is_path for _, is_path in options) and "://" not in value
        if is_path and not document.is_overridden(key):
            return str(folder / value)
        return value
    for option, _ in options:
        arguments = [argument for argument in get_args(option) if argument is not ...]
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, BaseModel):
            resolve_paths(document, option, key, value, folder)
        elif isinstance(value, dict) and get_origin(option) is dict:
            for name, item in value.items():
                value[name] = _resolved(document, arguments[1], (*key, name), item, folder)
        elif isinstance(value, list) and arguments:
            for index, item in enumerate(value):
                inner = arguments[min(index, len(arguments) - 1)]
                value[index] = _resolved(document, inner, (*key, index), item, folder)
    return value


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if any(isinstance(item, PathMarker) for item in field.metadata):
            annotation = Annotated[annotation, PathMarker()]  # type: ignore[assignment]
        alias = field.validation_alias or field.alias or name
        yield (alias if isinstance(alias, str) else name), annotation


def _tags(model: type[BaseModel]) -> Iterator[Any]:
    for _, annotation in _fields(model):
        if get_origin(annotation) is Literal:
            yield from get_args(annotation)


def _options(annotation: Any, *, is_path: bool = False) -> Iterator[tuple[Any, bool]]:
    """Yield the members of unions and aliases, each with a flag: is it a path?"""
    if isinstance(annotation, TypeAliasType):
        yield from _options(annotation.__value__, is_path=is_path)
    elif get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        marked = is_path or any(isinstance(item, PathMarker) for item in metadata)
        yield from _options(inner, is_path=marked)
    elif _is_union(annotation):
        for part in get_args(annotation):
            yield from _options(part, is_path=is_path)
    else:
        yield annotation, is_path


def _is_union(annotation: Any) -> bool:
    # list[X] and dict[K, V] have arguments, too, but their origin is a class
    origin = get_origin(annotation)
    return origin is not None and "Union" in getattr(origin, "__name__", str(origin))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    for option, _ in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            yield option
        else:
            for part in get_args(option):
                yield from _models_in(part)
