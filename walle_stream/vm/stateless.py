"""Detection of scripts that cannot keep state in their globals.

Every run gets new globals: the script's body is executed again (1 to 200 us).
This is wasted if the body only binds immutable values: functions without
mutable defaults, allowed modules (read-only proxies) and constants, in a script
that never stores an attribute. Runs cannot observe that such globals are
shared, so the session executes the body once. A doubtful script counts as
having state.
"""

import ast
from typing import Final

_STORING_NAMES: Final = frozenset({"setattr", "delattr", "type", "print"})
# functions of these modules write to the functions that they get
_STORING_MODULES: Final = frozenset({"abc", "dataclasses", "functools"})


def is_stateless(tree: ast.Module) -> bool:
    """Return whether the globals of a checked script are the same in all runs."""
    try:
        return all(map(_is_fixed, tree.body)) and not any(map(_stores, ast.walk(tree)))
    except RecursionError:
        return False  # too deeply nested for the compiler, which reports it


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
    # before Python 3.14 an annotation is evaluated with its function's definition
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
