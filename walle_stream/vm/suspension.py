"""Check that a script's generators are suspended only where closing them runs no code.

The garbage collector closes a generator that refers to itself, perhaps in the run
of another device or at the end of its VM. Code that runs then counts against the
other run. So a generator may be suspended only outside ``try`` and ``with``, where
closing it runs nothing. Coroutines and asynchronous generators have the same
problem, and no event loop to drive them, so scripts may not have them.
"""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

_TRIES: Final = (ast.Try, ast.TryStar)
_ASYNC: Final = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
_ASYNC_REFUSED: Final = (
    "uses 'async' or 'await', but a script has no event loop: write plain functions and generators"
)


class _Scope(NamedTuple):
    around: str
    """The enclosing ``try`` or ``with`` of the same function, or empty."""
    is_async: bool
    """Whether an enclosing node has a finding already."""


def suspension_findings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, problem and remedy) for each place where a script may not suspend itself."""
    waiting: list[tuple[ast.AST, _Scope]] = [(tree, _Scope("", is_async=False))]
    while waiting:  # no recursion: a script can be nested deeper than this stack allows
        node, scope = waiting.pop()
        line = getattr(node.target if isinstance(node, ast.comprehension) else node, "lineno", 0)
        if _is_async(node) and not scope.is_async:
            yield line, _ASYNC_REFUSED
            scope = scope._replace(is_async=True)
        if isinstance(node, (ast.Yield, ast.YieldFrom)) and scope.around:
            yield line, _yields_inside(scope.around)
        own: set[int] = set()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            # defaults, decorators and annotations belong to the enclosing function
            body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
            own = {id(child) for child in body}
            waiting += [(child, scope._replace(around="")) for child in body]
        elif isinstance(node, _TRIES):
            scope = scope._replace(around="try")
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            scope = scope._replace(around="with")
        waiting += [(child, scope) for child in ast.iter_child_nodes(node) if id(child) not in own]


def _is_async(node: ast.AST) -> bool:
    return isinstance(node, _ASYNC) or (isinstance(node, ast.comprehension) and bool(node.is_async))


def _yields_inside(around: str) -> str:
    return (
        f"yields inside a {around!r}: a generator that is left there would go on in the run of "
        f"another device; move the yield out of the {around}, for example collect values inside "
        "and yield them after it"
    )
