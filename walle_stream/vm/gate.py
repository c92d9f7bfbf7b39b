"""The gate: checks of a script before it is compiled.

The gate checks a script's syntax tree against ``guest.rules``. It rewrites the few
places where a guard must check at run time (``guest.restricted``). A finding names
file, line and remedy. The gate is a linter that catches mistakes early. It is not
a boundary against a hostile script (docs/isolation.md).
"""

import ast
import builtins
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Final, NamedTuple

from walle_stream.vm.asked_services import AskedService, asked_services
from walle_stream.vm.guest.delegation import YIELD_GUARD
from walle_stream.vm.guest.modules import exported_names
from walle_stream.vm.guest.reading import FORMAT_ATTRIBUTES, GUARDED_ATTRIBUTES
from walle_stream.vm.guest.restricted import FORMAT_GUARD, STORE_GUARD, is_plain_name
from walle_stream.vm.guest.rules import (
    ALLOWED_BUILTINS,
    ALLOWED_MODULES,
    REPLACED_BUILTINS,
    hint,
    is_refused_name,
)
from walle_stream.vm.stateless import is_stateless
from walle_stream.vm.suspension import suspension_findings

_FORBIDDEN_BUILTINS: Final = frozenset(dir(builtins)) - ALLOWED_BUILTINS - REPLACED_BUILTINS
_MATCH_ARGS: Final = "__match_args__"
_MATCH_ARGS_REFUSED: Final = (
    "uses '__match_args__', which may only give a class a tuple of plain names"
)
_RUN: Final = "define def run(ctx, page) at the top level"
_ON_MESSAGE: Final = "write it as def on_message(ctx, message)"
_MIGRATE: Final = (
    "its stateVersion needs def migrate(old) at the top level, which returns the new state as "
    "a dict"
)
# fields of nodes whose text is no identifier: values of constants, names of modules
# (checked separately), comments, the source of a template's expression
_TEXT_FIELDS: Final = frozenset({"kind", "module", "str", "type_comment", "value"})
_BINDERS: Final = (
    *(ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.TypeVar),
)

type _Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_OWN_SCOPES: Final = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp),
)

type Finding = tuple[int, str]
"""(line, problem and remedy)."""


class ScriptProblem(Exception):  # noqa: N818 - a finding, which callers turn into their error
    """A problem of a script; line and column count from 1, and 0 means unknown."""

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        """Keep the text and the place."""
        super().__init__(text, line, column)
        self.text, self.line, self.column = text, line, column


class CompiledScript(NamedTuple):
    """A script that passed the gate."""

    code: CodeType
    """Bytecode with the guards."""
    imports: list[str]
    """Imported modules, all of them allowed, ascending."""
    shares_globals: bool
    """Whether nothing in its globals can differ between runs."""
    takes_messages: bool
    """Whether the script has an ``on_message``."""
    asks: tuple[AskedService, ...]
    """Services that the script calls; the name is empty if the text does not have it."""


def compile_script(
    source: str, file: str, name: str, *, needs_migrate: bool = False
) -> CompiledScript:
    """Check a script, insert the guards and compile it; ``name`` becomes its file name.

    Raises:
        ScriptProblem: The script may not run.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a script's style is its author's choice
            tree = ast.parse(source, file)
            findings = check(tree, needs_migrate=needs_migrate)
            if findings:
                line, text = findings[0]
                more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
                raise ScriptProblem(text + more, line)
            imports, shares_globals = sorted(imported_modules(tree)), is_stateless(tree)
            asks = tuple(asked_services(tree))
            code = compile(rewrite(tree), name, "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        text = f"is not valid Python: {error.msg}"
        raise ScriptProblem(text, error.lineno or 0, error.offset or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ScriptProblem(f"is not valid Python, or nested too deep: {error}") from error
    takes_messages = _entry(tree, "on_message") is not None
    return CompiledScript(code, imports, shares_globals, takes_messages, asks)


def check(tree: ast.Module, *, needs_migrate: bool = False) -> list[Finding]:
    """Return the rules that a parsed script breaks, in the order of lines."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        bound.update(_bound_names(node))
    findings = list(_entry_findings(tree, "run", ("ctx", "page"), _RUN))
    if needs_migrate:
        findings += _entry_findings(tree, "migrate", ("old",), _MIGRATE)
    if _entry(tree, "on_message") is not None:
        findings += _entry_findings(tree, "on_message", ("ctx", "message"), _ON_MESSAGE)
    named = set(_fixed_match_args(tree))
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        findings.extend((line, text) for text in _problems(node, bound))
        if node not in named and _MATCH_ARGS in _identifiers(node):
            findings.append((line, _MATCH_ARGS_REFUSED))
    findings.extend(_lost_cell_findings(tree))
    findings.extend(suspension_findings(tree))
    return sorted(findings)


def imported_modules(tree: ast.Module) -> frozenset[str]:
    """Return the allowed modules that a script imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names & ALLOWED_MODULES.keys())


def rewrite(tree: ast.Module) -> ast.Module:
    """Insert the guards into a checked script, in place; line numbers stay the same."""
    _Guards().visit(tree)
    return ast.fix_missing_locations(tree)


class _Guards(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = _call(STORE_GUARD, node.value)
        elif node.attr in GUARDED_ATTRIBUTES:
            guarded = _call(FORMAT_GUARD, node.value, ast.Constant(node.attr))
            return ast.copy_location(guarded, node)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        self.generic_visit(node)
        node.value = _call(YIELD_GUARD, node.value)
        return node


def _call(guard: str, value: ast.expr, *more: ast.expr) -> ast.expr:
    name = ast.Name(guard, ast.Load())
    return ast.copy_location(ast.Call(name, [value, *more], []), value)


def _problems(node: ast.AST, bound: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        yield from (_import_refused(name) for name in names if name not in ALLOWED_MODULES)
    elif isinstance(node, ast.ImportFrom):
        yield from _from_problems(node)
    elif (
        isinstance(node, ast.Name)
        and node.id in _FORBIDDEN_BUILTINS
        and node.id not in bound
        and not is_refused_name(node.id)
    ):
        yield f"uses {node.id!r}, which a script does not have{hint(node.id)}"
    elif isinstance(node, ast.ClassDef):
        yield from _class_problems(node)
    elif isinstance(node, ast.MatchClass):
        for name in GUARDED_ATTRIBUTES.intersection(node.kwd_attrs):
            yield f"matches the attribute {name!r}, which a script may not match: call it instead"
    for name in filter(is_refused_name, _identifiers(node)):
        if not name.startswith("_") and not isinstance(node, (ast.Attribute, ast.MatchClass)):
            continue  # no attribute is read, and a script may name its own variables freely
        yield f"uses the name {name!r}, which a script may not use{hint(name)}"


def _fixed_match_args(tree: ast.Module) -> Iterator[ast.AST]:
    # the ``__match_args__`` of class bodies that are tuples of plain names, so that the
    # attributes that a pattern reads are known before the script runs
    for node in ast.walk(tree):
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            match statement:
                case ast.Assign(
                    targets=[ast.Name("__match_args__") as name], value=ast.Tuple(items)
                ):
                    values = [getattr(item, "value", None) for item in items]
                    if all(isinstance(value, str) and is_plain_name(value) for value in values):
                        yield name


def _class_problems(node: ast.ClassDef) -> Iterator[str]:
    # with such a field, a dataclass derived from str or datetime would let a pattern read the
    # method of that name
    for statement in node.body if node.bases else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if name in FORMAT_ATTRIBUTES or is_refused_name(name):
                yield f"has the field {name!r} in a class with a base: give it another name"


def _lost_cell_findings(tree: ast.Module) -> Iterator[Finding]:
    # super() expects a cell in the first argument's place if inner code uses that argument; a
    # comprehension puts its own variable there, and the interpreter crashes
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for function in ast.walk(tree) if "super" in names else ():
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for first in [*function.args.posonlyargs, *function.args.args][:1]:
                for line in _comprehensions_over(function, first.arg):
                    text = f"names {first.arg!r}, a function's first argument, in a comprehension"
                    yield line, f"{text}, where super() would crash: use another name there"


def _comprehensions_over(function: _Function, name: str) -> Iterator[int]:
    lines = []
    is_used_inside = False
    for node in _own_nodes(function):
        if isinstance(node, _OWN_SCOPES):
            is_used_inside |= name in {getattr(inner, "id", "") for inner in ast.walk(node)}
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            targets = [inner for one in node.generators for inner in ast.walk(one.target)]
            if any(isinstance(inner, ast.Name) and inner.id == name for inner in targets):
                lines.append(node.lineno)
    yield from lines if is_used_inside else ()


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    # the nodes of a function's body, without the insides of other scopes
    body = function.body
    waiting: list[ast.AST] = [*body] if isinstance(body, list) else [body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _OWN_SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def _from_problems(node: ast.ImportFrom) -> Iterator[str]:
    module = node.module or ""
    if node.level:
        yield "imports relatively, but a script is one file: put the code into it"
    elif module not in ALLOWED_MODULES:
        yield _import_refused(module)
    else:
        exported = exported_names(module)
        for alias in node.names:
            if alias.name == "*":
                yield f"imports * from {module!r}: import the names that it needs"
            elif alias.name not in exported and f"{module}.{alias.name}" not in ALLOWED_MODULES:
                yield f"imports {alias.name!r} from {module!r}, which has no such name for a script"


def _import_refused(module: str) -> str:
    return (
        f"imports {module!r}, which a script may not import{hint(module)}; it may import "
        f"{', '.join(sorted(ALLOWED_MODULES))}"
    )


def _entry(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    # the last definition counts, as when the script's body runs
    for node in reversed(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return node
    return None


def _entry_findings(
    tree: ast.Module, name: str, parameters: tuple[str, ...], how: str
) -> Iterator[Finding]:
    function = _entry(tree, name)
    if function is None:
        yield 0, f"has no function {name!r}: {how}"
        return
    has, count = function.args, len(parameters)
    positional = [*has.posonlyargs, *has.args]
    required = len(positional) - len(has.defaults)
    accepts = required <= count and (len(positional) >= count or has.vararg)
    if not accepts or None in has.kw_defaults:
        yield function.lineno, f"{name!r} does not take ({', '.join(parameters)}): {how}"
    yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own_nodes(function))
    if yields or isinstance(function, ast.AsyncFunctionDef):
        yield (
            function.lineno,
            f"{name!r} is called, neither awaited nor iterated: write it without async and yield",
        )


def _bound_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, _BINDERS):
        yield from _identifiers(node)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for field, value in ast.iter_fields(node):
        if field in _TEXT_FIELDS or (isinstance(node, ast.alias) and field == "name"):
            continue
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, str):
                yield item
