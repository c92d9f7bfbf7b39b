"""Where a script's generator may be suspended: nowhere that something runs when it is closed.

A generator that refers to itself is closed by the garbage collector: in the run
of another device, or when its VM is destroyed. It then works in
the other's time and counted against the other. So a generator is suspended only
where closing it runs nothing: outside of each ``try`` and ``with``. Coroutines
and asynchronous generators have no event loop that would drive them, and the
same end: a script has none.
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
    """``try`` or ``with`` of the same function, or empty."""
    is_async: bool
    """Whether a finding was made for what is around."""


def suspension_findings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, what is wrong there and what to do) where a script may not suspend itself."""
    waiting: list[tuple[ast.AST, _Scope]] = [(tree, _Scope("", is_async=False))]
    while waiting:  # no recursion: a script can be nested deeper than this stack
        node, scope = waiting.pop()
        line = getattr(node.target if isinstance(node, ast.comprehension) else node, "lineno", 0)
        if _is_async(node) and not scope.is_async:
            yield line, _ASYNC_REFUSED
            scope = scope._replace(is_async=True)
        if isinstance(node, (ast.Yield, ast.YieldFrom)) and scope.around:
            yield line, _yields_inside(scope.around)
        own: set[int] = set()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            # defaults, decorators and annotations belong to the function around
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
