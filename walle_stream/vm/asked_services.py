"""The services that a script calls, as far as its text says which."""

import ast
from collections.abc import Iterator
from typing import NamedTuple


class AskedService(NamedTuple):
    """``ctx.call_cloud`` with a constant: line and column from 1."""

    name: str
    line: int
    column: int


def asked_services(tree: ast.Module) -> Iterator[AskedService]:
    """Iterate over the services that a script calls by a constant, in the order of lines."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "call_cloud":
            continue
        named = [each.value for each in call.keywords if each.arg == "service"]
        service = next(iter([*call.args[:1], *named]), None)
        if isinstance(service, ast.Constant) and isinstance(service.value, str):
            yield AskedService(service.value, call.lineno, call.col_offset + 1)
