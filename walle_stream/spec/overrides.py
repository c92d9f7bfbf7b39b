"""Overrides of the command line: ``--set a.b=c``.

Place in the data flow: between reading a document and validating it, so that a
value from the command line is checked exactly like a value from the file.
"""

from typing import Any, Final

from walle_stream.errors import SpecFileError
from walle_stream.spec.document import Document, Key, format_key, shown
from walle_stream.spec.nodes import parse_override
from walle_stream.spec.suggestions import suggest

_DEPTH_MAX: Final = 20
_PARTS: Final = ("spec", "metadata")


def apply_override(document: Document, text: str) -> None:
    """Set one value: ``spec.a.b=c``, or ``spec.tasks.0.task=c`` in a list.

    Missing mappings on the way are made.

    Raises:
        SpecFileError: The override is malformed, or its place does not exist.
    """
    dotted, separator, value = text.partition("=")
    parts = dotted.split(".")
    if not separator or not all(parts):
        raise SpecFileError(f"--set: expected a.b=c, found {shown(text)}", "--set")
    if parts[0] not in _PARTS or not 1 < len(parts) <= _DEPTH_MAX:
        raise SpecFileError(
            f"--set: {shown(dotted)} must begin with spec. or metadata.{suggest(parts[0], _PARTS)}",
            "--set",
        )
    target: Any = document.value
    key: Key = ()
    first: Key | None = None
    for part in parts[:-1]:
        step = _step(target, part, key)
        key = (*key, step)
        if isinstance(target, dict) and target.get(str(step)) is None:
            target[str(step)] = {}
            first = first or key
        target = target[step]
    step = _step(target, parts[-1], key)
    target[step] = parse_override(value)
    document.replace(first or (*key, step))


def _step(target: Any, part: str, key: Key) -> str | int:
    if isinstance(target, dict):
        return part
    if not isinstance(target, list):
        raise SpecFileError(
            f"--set: {format_key(key)} is {shown(target)}: there is nothing to set in it", "--set"
        )
    if part.isascii() and part.isdigit() and len(part) < _DEPTH_MAX and int(part) < len(target):
        return int(part)
    raise SpecFileError(
        f"--set: there is no {format_key(key)}[{part[:_DEPTH_MAX]}]: the list has {len(target)} "
        "items, counted from 0",
        "--set",
    )
