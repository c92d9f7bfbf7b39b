"""Reader of YAML that keeps plain values and the place of each in the file.

A definition may come from anywhere, so the reader is safe (plain tags, JSON values
only) and bounded (size, nodes, aliases, depth). Place in the data flow: the file
comes in, and a ``Document`` goes out to ``overrides`` and ``loader``.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, override

import yaml

from walle_stream.errors import SpecFileError
from walle_stream.spec.document import Document, Key
from walle_stream.spec.variables import substitute

FILE_MAX_BYTES: Final = 1024 * 1024
_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 60
_TOO_LARGE: Final = "the document is too large (aliases count every time)"
_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null"))
# config holds JSON values, so dates are text; '=' and '<<' have no meaning
_NO_TAGS: Final = frozenset(_TAG + name for name in ("timestamp", "value", "merge"))
# these values appear in errors about unreachable brokers, so they are not masked everywhere; a
# malformed HOST:PORT is refused without being shown
_ADDRESSES: Final = frozenset({"brokers"})
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**64 - 1


class _BoundedLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - declared so by PyYAML
        first: [(tag, regexp) for tag, regexp in resolvers if tag not in _NO_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = 0
        self._depth = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._count += 1
        self._depth += 1
        if self._count > _MAX_NODES or self._depth > _MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # stubs
            raise yaml.MarkedYAMLError(problem=_TOO_LARGE, problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def read_documents(path: Path, environ: Mapping[str, str]) -> list[Document]:
    """Read the documents of a file; empty documents are left out.

    Variables are ``${VAR}`` and ``${VAR:-default}``; ``$$`` is a dollar.

    Raises:
        SpecFileError: The file cannot be read (the error has no line then), or is not
            YAML within our limits.
    """
    name = str(path)
    text = _read_text(path)
    documents = [
        _Builder(Document(name), environ).build(node)
        for node in _compose(name, text)
        if not _is_empty(node)
    ]
    if not documents:
        raise SpecFileError(f"{name}:1:1: the file defines nothing", name, 1, 1)
    return documents


def parse_override(text: str) -> Any:
    """Parse the value of an override as YAML: a number, text, a list.

    Raises:
        SpecFileError: The text is not YAML.
    """
    try:
        nodes = list(yaml.compose_all(text, Loader=_BoundedLoader))
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "not allowed"
        raise SpecFileError(f"--set: {text!r} is not a YAML value: {problem}", "--set") from error
    if not nodes or nodes[0] is None:
        return text
    if len(nodes) > 1:
        raise SpecFileError(f"--set: {text!r} is more than one YAML value", "--set")
    return _Builder(Document.of_override(), None).build(nodes[0]).value


def _compose(name: str, text: str) -> list[yaml.Node]:
    try:
        return list(yaml.compose_all(text, Loader=_BoundedLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = " ".join(str(error.problem or error.context or "not YAML").split())
        raise SpecFileError(f"{name}:{line}:{column}: {problem}", name, line, column) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = f"the character #x{ord(text[error.position]):04x} is not allowed"
        raise SpecFileError(f"{name}:{line}:{column}: {problem}", name, line, column) from error


def _is_empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and not node.value and not node.style)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecFileError(f"{path}: cannot be read: {reason}", str(path)) from error
    if len(content) > FILE_MAX_BYTES:
        raise SpecFileError(f"{path}: larger than {FILE_MAX_BYTES} bytes", str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise SpecFileError(
            f"{path}:{line}:{column}: not UTF-8", str(path), line, column
        ) from error


class _Builder:
    def __init__(self, document: Document, environ: Mapping[str, str] | None) -> None:
        self._document = document
        self._environ = environ
        self._count = 0
        self._yaml = _BoundedLoader("")

    def build(self, node: yaml.Node) -> Document:
        self._document.value = self._value(node, (), 0)
        return self._document

    def _value(self, node: yaml.Node, key: Key, depth: int) -> Any:
        document = self._document
        document.place(key, node.start_mark)
        self._count += 1
        if self._count > _MAX_NODES or depth > _MAX_DEPTH:
            raise document.error(key, _TOO_LARGE)
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, key, {_TAG + "map"})
            return dict(self._items(node, key, depth))
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, key, {_TAG + "seq"})
            return [
                self._value(item, (*key, index), depth + 1) for index, item in enumerate(node.value)
            ]
        self._check_tag(node, key, _SCALAR_TAGS)
        return self._scalar(node, key)

    def _check_tag(self, node: yaml.Node, key: Key, allowed: set[str] | frozenset[str]) -> None:
        if node.tag not in allowed:
            tag = str(node.tag).replace(_TAG, "!!")
            raise self._document.error(key, f"the tag {tag} is not allowed here")

    def _items(self, node: yaml.MappingNode, key: Key, depth: int) -> Iterator[tuple[str, Any]]:
        document = self._document
        seen: set[str] = set()
        for name_node, value_node in node.value:
            mark = name_node.start_mark
            if not isinstance(name_node, yaml.ScalarNode):
                document.place((*key, "?"), mark, is_key=True)
                raise document.error((*key, "?"), "keys must be plain text", is_key=True)
            name = name_node.value
            document.place((*key, name), mark, is_key=True)
            if name == "<<" and not name_node.style:
                raise document.error((*key, name), "merge keys are not supported", is_key=True)
            if name in seen:
                raise document.error(
                    (*key, name), f"the key {name!r} stands here twice", is_key=True
                )
            self._check_text(name, (*key, name))
            seen.add(name)
            yield name, self._value(value_node, (*key, name), depth + 1)

    def _scalar(self, node: yaml.Node, key: Key) -> Any:
        document = self._document
        text: str = node.value
        if "$" in text and self._environ is not None:
            try:
                replaced = substitute(text, self._environ)
            except ValueError as error:
                raise document.error(key, str(error)) from error
            if replaced.text != text:
                self._check_text(replaced.text, key)
                if not _ADDRESSES.intersection(key):
                    document.masked.update(replaced.secrets)
                if replaced.secrets:
                    document.secrets[key] = replaced.secrets
                return self._reparsed(replaced.text, key) if replaced.is_whole else replaced.text
        value = self._construct(node.tag, node, key)
        if isinstance(value, str):
            self._check_text(value, key)
        return value

    def _reparsed(self, text: str, key: Key) -> Any:
        # scalars only: a text that looks like a list, a comment or an alias stays text
        resolve = self._yaml.resolve
        tag = resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # stubs
        if tag == _TAG + "str":
            return text
        try:
            value = self._construct(tag, yaml.ScalarNode(tag, text), key)
        except SpecFileError:
            return text
        self._document.raw_texts[key] = text
        return value

    def _construct(self, tag: str, node: yaml.Node, key: Key) -> Any:
        try:
            value = self._yaml.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError) as error:
            kind = tag.removeprefix(_TAG)
            raise self._document.error(key, f"it cannot be read as a YAML {kind}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise self._document.error(key, f"{value} is not a JSON number")
        if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
            raise self._document.error(key, "the number does not fit into 64 bits")
        return value

    def _check_text(self, text: str, key: Key) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self._document.error(key, "the text is not valid Unicode") from error
