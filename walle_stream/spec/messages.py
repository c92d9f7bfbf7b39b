"""Our errors from pydantic's: one line each, with its place.

A message names the expected and the found value, and never shows a value from
the environment. Place in the data flow: ``loader`` calls this module for every
model that refuses its value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Never

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from walle_stream.errors import SpecFileError
from walle_stream.spec.annotations import known_keys, models_at, resolve_paths
from walle_stream.spec.document import MASK, Document, Key, shown
from walle_stream.spec.models import NAME_PATTERN
from walle_stream.spec.scalars import format_duration
from walle_stream.spec.suggestions import nearest, suggest

_LEADING_PATH: Final = re.compile(r"((?:[\w-]+)(?:\.[\w-]+|\[\d+\])*): ")
_PATH_PART: Final = re.compile(r"([\w-]+)|\[(\d+)\]")
_CLOSE: Final = 0.7
_RESTORABLE: Final = frozenset({"string_type", "path_type"})
_NAME_WORDS: Final = "lower-case letters, digits and dashes between them"
_TYPES: Final = {
    "bool": "true or false",
    "dict": "a mapping",
    "float": "a number",
    "frozen_set": "a list",
    "int": "a whole number",
    "int_from_float": "a whole number",
    "list": "a list",
    "mapping": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
    "path": "text",
    "set": "a list",
    "string": "text",
    "tuple": "a list",
}
_TEMPLATES: Final = {
    "enum": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_long": "at most {max_length} in the list",
    "too_short": "at least {min_length} in the list",
}


class Problem(NamedTuple):
    """A problem in a definition."""

    error: SpecFileError
    is_consequence: bool = False
    """Most likely part of another problem: a key is missing beside a misspelt key.
    Such a problem is counted, but never the one that is shown first."""


class Refused(NamedTuple):
    """A value that a model refused, and its place."""

    document: Document
    model: type[BaseModel]
    base: Key
    """The value's place."""
    value: Any
    known: tuple[str, ...] = ()
    """Keys allowed at the value's place besides the model's."""


def validate[M: BaseModel](refused: Refused, model: type[M], folder: Path) -> M | list[Problem]:
    """Return the validated model of a value, or its problems, one for each place.

    The paths in the value are resolved in place; in the file they are relative to ``folder``.
    """
    resolve_paths(refused.document, model, refused.base, refused.value, folder)
    while True:
        try:
            return model.model_validate(refused.value, by_alias=True, by_name=False)
        except ValidationError as error:
            if not _restore_texts(refused, error, folder):
                return explain(refused, error)


def refuse(problems: Sequence[Problem], main: str) -> Never:
    """Raise the first problem with the number of the others; the file ``main`` comes first.

    Raises:
        SpecFileError: Always.
    """

    def rank(problem: Problem) -> tuple[bool, bool, int, int]:
        error = problem.error
        is_elsewhere = error.file not in {main, "--set"}
        return problem.is_consequence, is_elsewhere, error.line, error.column

    first = min(problems, key=rank).error
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise SpecFileError(first.message + more, first.file, first.line, first.column)


def explain(refused: Refused, error: ValidationError) -> list[Problem]:
    """Return the problems of a value, one for each place."""
    details = _without_echoes(error.errors(include_url=False))
    unknown = {detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden"}
    problems: dict[Key, Problem] = {}
    messages: dict[Key, str] = {}
    for detail in details:
        key, message, is_key = _explain_one(refused, detail)
        place = (*key, detail["type"] == "missing")
        if place in messages:
            if detail["type"] != "literal_error":
                continue
            # the key takes a word or another kind of value, such as ``true``
            either = f" or {detail.get('ctx', {})['expected']}, found "
            message = messages[place].replace(", found ", either, 1)
        messages[place] = message
        is_consequence = detail["type"] == "missing" and detail["loc"][:-1] in unknown
        made = refused.document.error(key, message, is_key=is_key)
        problems[place] = Problem(made, is_consequence)
    return list(problems.values())


def _restore_texts(refused: Refused, error: ValidationError, folder: Path) -> bool:
    # turns values of ``${VAR}`` that were read as numbers back into text; returns whether any was
    is_changed = False
    for detail in error.errors(include_url=False):
        key: Key = (*refused.base, *detail["loc"])
        text = refused.document.raw_texts.pop(key, None)
        if detail["type"] in _RESTORABLE and text is not None:
            target = refused.value
            for part in detail["loc"][:-1]:
                target = target[part]
            is_path = detail["type"] == "path_type"
            target[detail["loc"][-1]] = str(folder / text) if is_path else text
            is_changed = True
    return is_changed


def _without_echoes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    # pydantic also reports a list with a refused item as too short: keep the item alone
    parents = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [detail for detail in details if detail["loc"] not in parents]


def _explain_one(refused: Refused, detail: ErrorDetails) -> tuple[Key, str, bool]:
    location, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        name = str(location[-1])
        key = (*_located(refused, location[:-1]), name)
        return (
            key,
            f"unknown key {shown(name)}{suggest(name, _known(refused, location[:-1]))}",
            True,
        )
    if kind == "missing":
        return _missing(refused, location)
    if kind.startswith("union_tag_"):
        return _wrong_tag(refused, detail)
    key = _located(refused, location)
    if kind == "value_error":
        return *_value_error(refused, key, detail), False
    if location[-1:] == ("[key]",):
        name = str(location[-2])
        return key, f"bad key: {_wrong(detail, name, shown(name))}", True
    # the value as written, because pydantic may give the converted one
    is_whole = len(key) == len(refused.base) + len(location)
    value = _at(refused.value, key[len(refused.base) :]) if is_whole else detail["input"]
    # masked by its place, because a number looks different from its text
    is_secret = key in refused.document.secrets and not isinstance(value, (dict, list))
    return key, _wrong(detail, value, MASK if is_secret else shown(value)), False


def _wrong_tag(refused: Refused, detail: ErrorDetails) -> tuple[Key, str, bool]:
    # a key of the part selects one of several models
    location, context = detail["loc"], detail["ctx"]
    name = context["discriminator"].strip("'")
    if detail["type"] == "union_tag_not_found":
        return _missing(refused, (*location, name))
    key = (*_located(refused, location), name)
    tag, tags = str(detail["input"][name]), context["expected_tags"]
    close = nearest(tag, re.findall(r"'([^']*)'", tags))
    hint = f", did you mean {close!r}?" if close else ""
    what = MASK if key in refused.document.secrets else shown(tag)
    return key, f"expected {tags}, found {what}{hint}", False


def _missing(refused: Refused, location: tuple[str | int, ...]) -> tuple[Key, str, bool]:
    name = str(location[-1])
    parent = _located(refused, location[:-1])
    # a model that allows any key cannot report a misspelt one
    present = _at(refused.value, parent[len(refused.base) :])
    models = models_at(refused.model, location[:-1])
    if isinstance(present, dict) and any(m.model_config.get("extra") == "allow" for m in models):
        known = {key for model in models for key in known_keys(model)}
        for other in present:
            if other not in known and nearest(other, [name], _CLOSE):
                message = f"unknown key {shown(other)}, did you mean {name!r}?"
                return (*parent, other), message, True
    return (*parent, name), f"missing key {name!r}", True


def _value_error(refused: Refused, key: Key, detail: ErrorDetails) -> tuple[Key, str]:
    message = detail["msg"].removeprefix("Value error, ")
    # the message of a whole model's check may begin with a key: 'events[0].at: ...'
    match = _LEADING_PATH.match(message)
    if match is not None:
        inner: Key = tuple(
            int(index) if index else name for name, index in _PATH_PART.findall(match[1])
        )
        if _has(_at(refused.value, key[len(refused.base) :]), inner):
            return (*key, *inner), message[match.end() :]
    return key, message


def _wrong(detail: ErrorDetails, value: Any, what: str) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    base = kind.removesuffix("_type").removesuffix("_parsing")
    hint = ""
    if base in _TYPES:
        expected = _TYPES[base]
        if expected == "text" and isinstance(value, (bool, int, float)):
            hint = ": put it in quotes"
    elif kind in _TEMPLATES:
        expected = _TEMPLATES[kind].format(**_with_units(context, value))
        if kind == "literal_error" and isinstance(value, str):
            close = nearest(value, re.findall(r"'([^']*)'", expected))
            hint = f", did you mean {close!r}?" if close else ""
    elif kind == "string_pattern_mismatch":
        is_name = context["pattern"] == NAME_PATTERN
        expected = _NAME_WORDS if is_name else f"text that matches {context['pattern']}"
    else:
        return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, found {what}"
    what = str(len(value)) if kind in {"too_short", "too_long"} else what
    return f"expected {expected}, found {what}{hint}"


def _with_units(context: Mapping[str, Any], value: Any) -> dict[str, Any]:
    described = dict(context)
    for key in described.keys() & {"ge", "gt", "le", "lt"}:
        if isinstance(value, str):
            is_size = value[-1:] == "B" or value.isdecimal()
            described[key] = (
                f"{described[key]} bytes" if is_size else format_duration(int(described[key]))
            )
    return described


def _known(refused: Refused, location: tuple[str | int, ...]) -> Iterable[str]:
    return [*known_keys(refused.model, location), *(() if location else refused.known)]


def _located(refused: Refused, location: tuple[str | int, ...]) -> Key:
    """Return the place of a location, without the marks that pydantic adds."""
    value, key = refused.value, refused.base
    for part in location:
        if _has(value, (part,)):
            value = value[part]
            key = (*key, part)
    return key


def _has(value: Any, key: Key) -> bool:
    for part in key:
        is_index = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not is_index and not (isinstance(value, dict) and part in value):
            return False
        value = value[part]
    return bool(key)


def _at(value: Any, key: Key) -> Any:
    for part in key:
        value = value[part]
    return value
