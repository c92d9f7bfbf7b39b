"""Scripts: JSON Lines with a step each; blank lines and lines with ``#`` are skipped.

::

    {"device_id": "a", "kind": "click", "page_id": "shop", "event_time_ms": 1700000000000}
    {"late": {"device_id": "a", "kind": "click", "page_id": "shop", "event_time_ms": 5}}
    {"duplicate": {...}}                         a row that is counted and dropped
    {"broken": "{", "device_id": "a"}            a row that cannot be decoded: a dead letter
    {"pause": "before-exit"}                     until the gate is released
    {"abort": "once"}                            SIGKILL, once
    {"end": true}                                the source's natural end, for this run

An event has the fields of ``walle_stream.events.Event``. By default ``id`` is the kind,
``page_instance`` is empty and ``ingest_time_ms`` is the event's time. A run goes to the first
``end`` that some partition has not passed, and the next run continues after it. The last step is
always followed by an ``end``.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from walle_stream.errors import SourceError, SourceNotFoundError
from walle_stream.events import Event
from walle_stream.types import device_id_problem

type _StepKind = Literal["event", "late", "duplicate", "broken", "pause", "abort", "end"]

END: Final[Mapping[str, Any]] = {"end": True}
"""The step that ends the source for this run."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_FIELDS: Final = Event.__struct_fields__
_FOLLOWS: Final = {"id": "kind", "ingest_time_ms": "event_time_ms"}
_COMMANDS: Final[dict[_StepKind, set[str]]] = {
    "late": {"late"},
    "duplicate": {"duplicate"},
    "broken": {"broken", "device_id"},
    "pause": {"pause"},
    "abort": {"abort"},
    "end": {"end"},
}


class Step(msgspec.Struct, frozen=True):
    """A step of a script."""

    kind: _StepKind
    origin: str = ""
    """Name and number of a row, such as ``script.jsonl#17``. Commands and comments do not count, so
    the same rows leave the same bytes with any commands between them."""
    device_id: str = ""
    """Device of a row; empty for commands."""
    text: str = ""
    """Name of a pause or abort, or the row as in the script."""
    event: Event | None = None
    """Event of a row, if it has one."""


def pause(name: str) -> dict[str, str]:
    """Return a step that waits for ``Gates.release(name)``.

    Args:
        name: Letters, digits, ``-`` and ``_``.
    """
    return {"pause": name}


def abort(name: str) -> dict[str, str]:
    """Return a step that kills the process with SIGKILL when it is reached for the first time.

    Args:
        name: Letters, digits, ``-`` and ``_``; different from the names of other aborts.
    """
    return {"abort": name}


def broken(text: str, device_id: str) -> dict[str, str]:
    """Return a step with a row that cannot be decoded."""
    return {"broken": text, "device_id": device_id}


def write_script(path: Path, steps: Iterable[Mapping[str, Any]]) -> None:
    """Write a script.

    Args:
        path: File to write; an existing one is replaced.
        steps: Events as mappings, ``{"late": event}``, ``{"duplicate": event}``, and the results
            of ``pause``, ``abort``, ``broken`` and ``END``.
    """
    path.write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")


def script_content(path: Path) -> bytes:
    """Return a script's bytes.

    Raises:
        SourceNotFoundError: The file does not exist.
        SourceError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise SourceNotFoundError(
            f"script {str(path)!r} does not exist: correct spec.source.script"
        ) from error
    except OSError as error:
        raise SourceError(f"script {str(path)!r} cannot be read ({error})") from error


def read_script(path: Path) -> list[Step]:
    """Read a whole script.

    Returns:
        Its steps, of which the last is an end.

    Raises:
        SourceNotFoundError: The file does not exist.
        SourceError: The file cannot be read, or a line is not a valid step.
    """
    lines = script_content(path).split(b"\n")
    steps: list[Step] = []
    rows = 0
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(b"#"):
            steps.append(_step(path, number, line, f"{path.name}#{rows + 1}"))
            rows += steps[-1].kind not in {"pause", "abort", "end"}
    if not steps or steps[-1].kind != "end":
        steps.append(Step("end"))
    return steps


def _step(path: Path, number: int, line: bytes, origin: str) -> Step:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        place = _BYTE.search(str(error))
        column = int(place[1]) + 1 if place else 1
        raise _wrong(path, number, column, f"not JSON ({error})") from error
    try:
        return _read(origin, found, line)
    except _Problem as problem:
        key, what = problem.args
        column = line.find(f'"{key}"'.encode()) + 1 if key else 1
        raise _wrong(path, number, max(column, 1), what) from None


class _Problem(Exception):  # noqa: N818 - becomes a SourceError above
    """A key and the problem with it."""


def _read(origin: str, found: Any, line: bytes) -> Step:
    if not isinstance(found, dict):
        raise _Problem("", "expected an object, an event or a command")
    kind = next((name for name in _COMMANDS if name in found), None)
    if kind is None:
        event = _event(found)
        return Step("event", origin, event.device_id, line.decode(), event)
    for name in found:
        if name not in _COMMANDS[kind]:
            raise _Problem(name, f"a step {kind!r} has no key {name!r}")
    if kind in {"late", "duplicate"}:
        event = _event(found[kind])
        return Step(kind, origin, event.device_id, line.decode(), event)
    if kind == "broken":
        return _broken(origin, found)
    if kind == "end":
        if found[kind] is not True:
            raise _Problem(kind, "expected true")
        return Step("end", origin)
    name = found[kind]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Problem(kind, f"expected a name of letters, digits, - and _, found {name!r}")
    return Step(kind, origin, text=name)


def _broken(origin: str, found: dict[str, Any]) -> Step:
    text, device_id = found["broken"], found.get("device_id", "")
    problem = device_id_problem(device_id)
    if problem is not None or not isinstance(text, str):
        raise _Problem("broken", problem or "expected the row as text")
    return Step("broken", origin, device_id, text)


def _event(found: Any) -> Event:
    if not isinstance(found, dict):
        raise _Problem("", "expected an event")
    for name in found:
        if name not in _FIELDS:
            raise _Problem(
                name,
                f"{name!r} is neither a command ({', '.join(_COMMANDS)}) nor a field of an event "
                f"({', '.join(_FIELDS)})",
            )
    whole = {"page_instance": "", **found}
    for name, other in _FOLLOWS.items():
        if other in found:
            whole.setdefault(name, found[other])
    try:
        event = msgspec.convert(whole, Event)
    except msgspec.ValidationError as error:
        text = str(error)
        key = text.rpartition("$.")[2].rstrip("`")
        raise _Problem(_FOLLOWS.get(key, key), f"not an event: {text}") from None
    problem = device_id_problem(event.device_id)
    if problem is not None:
        raise _Problem("device_id", problem)
    return event


def _wrong(path: Path, line: int, column: int, what: str) -> SourceError:
    return SourceError(f"{path}:{line}:{column}: {what}: correct the script")
