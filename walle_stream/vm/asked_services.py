"""The services that a script calls, as far as its text names them."""

import ast
from collections.abc import Iterator
from typing import NamedTuple


class AskedService(NamedTuple):
    """A mention of ``ctx.call_cloud``: line and column from 1."""

    name: str
    """The service; empty if the text does not name it."""
    line: int
    column: int


def asked_services(tree: ast.Module) -> Iterator[AskedService]:
    """Yield the services that a script calls, in the order of lines."""
    named: dict[ast.expr, str] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        keywords = [each.value for each in call.keywords if each.arg == "service"]
        service = next(iter([*call.args[:1], *keywords]), None)
        if isinstance(service, ast.Constant) and isinstance(service.value, str):
            named[call.func] = service.value
    mentions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "call_cloud"
    ]
    for each in sorted(mentions, key=lambda node: (node.lineno, node.col_offset)):
        yield AskedService(named.get(each, ""), each.lineno, each.col_offset + 1)
