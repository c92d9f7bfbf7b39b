"""YAML with places: plain values, and where in the file each of them stands.

Safe (plain tags only) and bounded (size, nodes, aliases): a definition may come
from anywhere.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from walle_stream.errors import SpecFileError

FILE_MAX_BYTES: Final = 1024 * 1024
"""Largest definition file."""

_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 60
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")

type Key = tuple[str | int, ...]
"""A place in a document: mapping keys and list indices from the root."""


class Document:
    """One YAML document: its values and their places."""

    def __init__(self, file: str) -> None:
        """Start empty.

        Args:
            file: The file's name as the user gave it.
        """
        self.file = file
        self.value: Any = None
        self.places: dict[Key, tuple[int, int]] = {}
        """Line and column, from 1, of each value."""
        self.key_places: dict[Key, tuple[int, int]] = {}
        """The same of the key in front of it."""
        self.masked: set[str] = set()
        """Values that came from the environment."""

    def error(self, key: Key, message: str, *, is_key: bool = False) -> SpecFileError:
        """Make an error at a place.

        Args:
            key: The place; its nearest known parent is named if it is missing.
            message: What is wrong.
            is_key: The key itself is wrong, or what stands below it.
        """
        line, column = 1, 1
        places = {**self.places, **self.key_places} if is_key else self.places
        for length in range(len(key), -1, -1):
            if key[:length] in places:
                line, column = places[key[:length]]
                break
        path = format_key(key)
        where = f"{path}: " if path else ""
        return SpecFileError(
            f"{self.file}:{line}:{column}: {where}{message}", self.file, line, column
        )


def format_key(key: Key) -> str:
    """Return a place as people write it: ``spec.tasks[0].script``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_documents(path: Path, environ: Mapping[str, str]) -> list[Document]:
    """Read the documents of a file.

    Args:
        path: The file.
        environ: For ``${VAR}`` and ``${VAR:-default}``; ``$$`` is a dollar.

    Raises:
        SpecFileError: The file cannot be read, or is not YAML as we allow it.
    """
    name = str(path)
    text = _read_text(path)
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = " ".join(str(error.problem or error.context or "not YAML").split())
        raise SpecFileError(f"{name}:{line}:{column}: {problem}", name, line, column) from error
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())[:200]
        raise SpecFileError(f"{name}:1:1: not YAML: {problem}", name, 1, 1) from error
    documents = [_Builder(name, environ).build(node) for node in nodes if node is not None]
    if not documents:
        raise SpecFileError(f"{name}:1:1: the file defines nothing", name, 1, 1)
    return documents


def parse_scalar(text: str) -> Any:
    """Parse the value of an override as YAML: a number, text, a list.

    Args:
        text: What stands behind the ``=``.

    Raises:
        SpecFileError: It is not YAML.
    """
    try:
        return yaml.safe_load(text) if text else ""
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:200]
        raise SpecFileError(f"--set: {text!r} is not a YAML value: {problem}", "--set") from error


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()[: FILE_MAX_BYTES + 1]
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecFileError(f"{path}: cannot be read: {reason}", str(path)) from error
    if len(content) > FILE_MAX_BYTES:
        raise SpecFileError(f"{path}: larger than {FILE_MAX_BYTES} bytes", str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecFileError(f"{path}:{line}:1: not UTF-8", str(path), line, 1) from error


class _Builder:
    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self._document = Document(file)
        self._environ = environ
        self._count = 0
        self._constructor = yaml.SafeLoader("")

    def build(self, node: yaml.Node) -> Document:
        self._document.value = self._value(node, (), 0)
        return self._document

    def _value(self, node: yaml.Node, key: Key, depth: int) -> Any:
        document = self._document
        mark = node.start_mark
        document.places[key] = (mark.line + 1, mark.column + 1)
        self._count += 1
        if self._count > _MAX_NODES or depth > _MAX_DEPTH:
            raise document.error(key, "the document is too large (aliases count every time)")
        if isinstance(node, yaml.MappingNode):
            return dict(self._items(node, key, depth))
        if isinstance(node, yaml.SequenceNode):
            return [
                self._value(item, (*key, index), depth + 1) for index, item in enumerate(node.value)
            ]
        return self._scalar(node, key)

    def _items(self, node: yaml.MappingNode, key: Key, depth: int) -> Iterator[tuple[str, Any]]:
        document = self._document
        seen: set[str] = set()
        for name_node, value_node in node.value:
            name = name_node.value if isinstance(name_node, yaml.ScalarNode) else None
            mark = name_node.start_mark
            place = (mark.line + 1, mark.column + 1)
            if name is None or name == "<<":
                document.places[*key, "?"] = place
                raise document.error((*key, "?"), "keys must be plain text")
            if name in seen:
                document.key_places[*key, name] = place
                raise document.error(
                    (*key, name), f"the key {name!r} stands here twice", is_key=True
                )
            seen.add(name)
            document.key_places[*key, name] = place
            yield name, self._value(value_node, (*key, name), depth + 1)

    def _scalar(self, node: yaml.Node, key: Key) -> Any:
        text: str = node.value
        if "$" in text:
            replaced = self._substitute(text, key)
            if replaced != text:
                is_whole = _VARIABLE.fullmatch(text) is not None
                return parse_scalar(replaced) if is_whole and replaced else replaced
        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            problem = " ".join(str(error).split())[:120]
            raise self._document.error(key, f"not allowed: {problem}") from error

    def _substitute(self, text: str, key: Key) -> str:
        document = self._document

        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return "$"
            value = self._environ.get(match[2])
            if value is not None:
                if value:
                    document.masked.add(value)
                return value
            if match[3] is None:
                raise document.error(
                    key, f"the environment has no {match[2]}: set it, or write ${{{match[2]}:-...}}"
                )
            return match[3]

        return _VARIABLE.sub(replace, text)
