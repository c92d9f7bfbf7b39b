"""The gate: what a script must be before it is compiled.

Checks a script's syntax tree against ``guest.rules`` and rewrites the few
places where a guard has to look at run time (``guest.restricted``). A finding
names file and line and what to do. The gate is a linter: it catches mistakes
early, and is no boundary against who wants past it (docs/isolation.md).
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
    "uses '__match_args__' otherwise than to give a class a tuple of plain names"
)
_RUN: Final = "define def run(ctx, page) at the top level"
_ON_MESSAGE: Final = "write it as def on_message(ctx, message)"
_MIGRATE: Final = (
    "its stateVersion asks for def migrate(old) at the top level, which returns the new state as "
    "a dict"
)
# text in nodes that is no identifier: values of constants, names of modules
# (checked by themselves), comments, the source of a template's expression
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
"""(line, what is wrong there and what to do)."""


class ScriptProblem(Exception):  # noqa: N818 - a finding, which callers turn into their error
    """What is wrong with a script: line and column from 1, 0 when unknown."""

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        """Note it."""
        super().__init__(text, line, column)
        self.text, self.line, self.column = text, line, column


class CompiledScript(NamedTuple):
    """A script that may run."""

    code: CodeType
    """With the guards in it."""
    imports: list[str]
    """Allowed modules that it imports, ascending."""
    shares_globals: bool
    """Whether nothing in its globals can differ between runs."""
    takes_messages: bool
    """Whether it has an ``on_message``."""
    asks: tuple[AskedService, ...]
    """Services that it calls by a name that stands there."""


def compile_script(
    source: str, file: str, name: str, *, needs_migrate: bool = False
) -> CompiledScript:
    """Check a script, put the guards in and compile it; its code names ``name`` as its place.

    Raises:
        ScriptProblem: It may not run.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a script's style is its own
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
    """Say which rules a parsed script breaks, in the order of lines."""
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
    """Put the guards into a checked script, in place; line numbers stay."""
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
            yield f"matches the attribute {name!r}, which a script may not: call it"
    for name in filter(is_refused_name, _identifiers(node)):
        if not name.startswith("_") and not isinstance(node, (ast.Attribute, ast.MatchClass)):
            continue  # it reads no attribute: a script may call its own what it likes
        yield f"uses the name {name!r}, which a script may not{hint(name)}"


def _fixed_match_args(tree: ast.Module) -> Iterator[ast.AST]:
    # the names in class bodies that are given plain names of attributes: all that a
    # pattern reads is known before the script runs
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
    # a dataclass of texts, or of times, would let a pattern read the method by its field's name
    for statement in node.body if node.bases else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if name in FORMAT_ATTRIBUTES or is_refused_name(name):
                yield f"has the field {name!r} in a class with a base: name it otherwise"


def _lost_cell_findings(tree: ast.Module) -> Iterator[Finding]:
    # super() takes what is in the first argument's place for a cell when inner code uses that
    # argument; a comprehension puts its own variable there, and the interpreter crashes
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for function in ast.walk(tree) if "super" in names else ():
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for first in [*function.args.posonlyargs, *function.args.args][:1]:
                for line in _comprehensions_over(function, first.arg):
                    text = f"names {first.arg!r}, a function's first argument, in a comprehension"
                    yield line, f"{text}, where super() would crash: name it otherwise there"


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
    # what is in its body, but for the insides of other scopes
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
        yield "imports relatively: a script is one file, put what it needs into it"
    elif module not in ALLOWED_MODULES:
        yield _import_refused(module)
    else:
        exported = exported_names(module)
        for alias in node.names:
            if alias.name == "*":
                yield f"imports * from {module!r}: name what it needs"
            elif alias.name not in exported and f"{module}.{alias.name}" not in ALLOWED_MODULES:
                yield f"imports {alias.name!r} from {module!r}, which has no such name for a script"


def _import_refused(module: str) -> str:
    return (
        f"imports {module!r}, which a script may not{hint(module)}; it may import "
        f"{', '.join(sorted(ALLOWED_MODULES))}"
    )


def _entry(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    # the last one counts, as when the script's body runs
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
            f"{name!r} is called, not awaited nor iterated: no async def, no yield in it",
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
