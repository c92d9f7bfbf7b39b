"""Which scripts can keep nothing in their globals.

A script's globals are made anew for every run by executing its body again
(1 to 200 us). That is wasted where the body only binds what nobody can change:
functions without mutable defaults, allowed modules (read-only proxies) and
immutable constants, in a script that never stores an attribute. Sharing such
globals between runs cannot be observed, so the session executes the body once.
Anything not surely of that kind counts as having state.
"""

import ast
from typing import Final

_STORING_NAMES: Final = frozenset({"setattr", "delattr", "type", "print"})
# what they have writes to the functions that it is given
_STORING_MODULES: Final = frozenset({"abc", "dataclasses", "functools"})


def is_stateless(tree: ast.Module) -> bool:
    """Say whether nothing in a checked script's globals can differ between runs."""
    try:
        return all(map(_is_fixed, tree.body)) and not any(map(_stores, ast.walk(tree)))
    except RecursionError:
        return False  # nested beyond what the compiler takes: it says so itself


def _is_fixed(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.FunctionDef(decorator_list=[], args=arguments, returns=returns):
            if any(map(_binds, (arguments, returns))):
                return False
            defaults = [*arguments.defaults, *arguments.kw_defaults]
            return all(default is None or _is_immutable(default) for default in defaults)
        case ast.Assign(targets=[ast.Name()], value=value):
            return _is_immutable(value)
        case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=value) if value:
            return _is_immutable(value) and not _binds(annotation)
    return False


def _is_immutable(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Tuple(elts=items):
            return all(map(_is_immutable, items))
        case ast.UnaryOp(operand=operand):
            return _is_immutable(operand)
        case ast.BinOp(left=left, right=right):
            return _is_immutable(left) and _is_immutable(right)
    return False


def _binds(node: ast.AST | None) -> bool:
    # an annotation is evaluated where its function is, before Python 3.14
    return node is not None and any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node))


def _stores(node: ast.AST) -> bool:
    match node:
        case ast.Global() | ast.ClassDef():
            return True
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            return True
        case ast.Name(id=name):
            return name in _STORING_NAMES
        case ast.Import(names=names):
            return any(alias.name in _STORING_MODULES for alias in names)
        case ast.ImportFrom(module=module):
            return module in _STORING_MODULES
    return False
