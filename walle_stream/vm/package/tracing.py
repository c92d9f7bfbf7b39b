"""What one interpreter adds to a task package; runs inside that interpreter.

``build`` starts the interpreter that a package is for with this file
as its program (``-I -S -B``), writes one request to its stdin and reads one
answer, both JSON. Only that interpreter can compile for itself; it needs
nothing but its standard library and the folder that holds ``walle_stream``.

The standard modules that a script needs are found by importing what it names
of ``guest.rules.ALLOWED_MODULES`` and looking at what came with it: exact,
and no line of the script is executed. What this file imports itself at its
head must therefore be part of the guest library's own imports.

Request: ``{"root", "source", "file", "imports"}``. Answer: ``{"error", "line",
"column", "python"}`` (line -1: it is the interpreter that is wrong), or the
fields of ``build.Compiled``; bytes are hexadecimal.
"""

import json
import marshal
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

PYTHON_MIN: Final = (3, 13)
"""Oldest Python that can have isolated interpreters as we use them."""

# what the C code of any script may import, whatever the script names
_ALWAYS: Final = ("_pylong", "annotationlib", "copyreg", "time", "typing", "warnings")
# what allowed modules import when they are used, not when they are imported
_LATER: Final = {"datetime": ("_strptime",)}
_OWN: Final = ("__main__", "walle_stream")


def main() -> None:
    """Answer the request on stdin; see the module."""
    request = json.load(sys.stdin)
    json.dump(_answer(request), sys.stdout)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if sys.implementation.name != "cpython" or sys.version_info < PYTHON_MIN:
        found = f"{sys.implementation.name} {sys.version.partition(' ')[0]}"
        return _error(f"it is {found}, tasks need CPython 3.13 or newer", -1)
    sys.path.append(request["root"])
    import_module("walle_stream.vm.guest.session")
    for name in _ALWAYS:
        _import_if_there(name)
    base = set(sys.modules)
    for name in request["imports"]:
        import_module(name)
        for later in _LATER.get(name, ()):
            import_module(later)
    traced = set(sys.modules) - base
    # from here on imports do not count
    try:
        script = _compiled(request["source"], request["file"])
    except SyntaxError as error:
        return _error(f"is not valid Python: {error.msg}", error.lineno, error.offset)
    except (ValueError, RecursionError, MemoryError) as error:
        return _error(f"cannot be compiled: {error}")
    if isinstance(script, tuple):
        return _error(script[1], script[0])
    base_kinds, kinds = _kinds(base), _kinds(traced)
    util = import_module("importlib.util")
    return {
        "tag": sys.implementation.cache_tag,
        "magic": util.MAGIC_NUMBER.hex(),
        "python": sys.version.partition(" ")[0],
        "script": script.hex(),
        "modules": kinds,
        "modules_bin": _bytecode(kinds).hex(),
        "base": base_kinds,
        "base_bin": _bytecode(base_kinds).hex(),
    }


def _error(text: str, line: int | None = 0, column: int | None = 0) -> dict[str, Any]:
    version = sys.version.partition(" ")[0]
    return {"error": text, "line": line or 0, "column": column or 0, "python": version}


def _import_if_there(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise


def _compiled(source: str, file: str) -> bytes | tuple[int, str]:
    # the bytes, or the first finding of the gate; as program.compile_program does,
    # whose module needs more than a bare interpreter has
    ast = import_module("ast")
    gate = import_module("walle_stream.vm.gate")
    stateless = import_module("walle_stream.vm.stateless")
    import_module("warnings").simplefilter("ignore")  # a script's style is its own
    tree = ast.parse(source, file)
    findings = gate.check(tree)
    if findings:
        line, text = findings[0]
        return line, text
    imports = sorted(gate.imported_modules(tree))
    shares_globals = stateless.is_stateless(tree)
    code = compile(gate.rewrite(tree), file, "exec", dont_inherit=True, optimize=0)
    return marshal.dumps((code, imports, shares_globals))


def _kinds(names: Iterable[str]) -> dict[str, str]:
    """Return where each module comes from, by name."""
    found = {}
    for name in sorted(names):
        spec = None if name.partition(".")[0] in _OWN else _spec(name)
        if spec is None:
            continue
        if spec.origin in {"built-in", "frozen"}:
            found[name] = spec.origin
        elif type(spec.loader).__name__ == "ExtensionFileLoader":
            found[name] = "extension"
        else:
            found[name] = "bytecode"
    return found


def _spec(name: str) -> Any:
    # None: a second name that a module gives itself or another one (os.path)
    spec = getattr(sys.modules[name], "__spec__", None)
    if spec is not None and spec.name == name:
        return spec
    # or its own file puts another module in its place (collections.abc in 3.13)
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules[parent], "__path__", ()) if parent else None
    return import_module("importlib.machinery").PathFinder.find_spec(name, path)


def _bytecode(kinds: dict[str, str]) -> bytes:
    # each module by itself: one that is never imported is never unmarshalled
    bundle = []
    for name, kind in kinds.items():
        spec = _spec(name) if kind == "bytecode" else None
        if spec is not None:
            # no path of this machine: <json.decoder>, as the guest library's <walle_guest.codec>
            source = spec.loader.get_source(name)
            code = compile(source, f"<{name}>", "exec", dont_inherit=True, optimize=2)
            is_package = spec.submodule_search_locations is not None
            bundle.append((name, is_package, marshal.dumps(code)))
    return marshal.dumps(bundle)


if __name__ == "__main__":
    main()
