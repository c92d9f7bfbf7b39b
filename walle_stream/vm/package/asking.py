"""Check of a script, or of its modules, that runs inside another interpreter.

``build`` starts the interpreter with this file as its program (``-I -S -B``),
writes one request to its stdin and reads one answer, both JSON. The interpreter
needs only its standard library and the folder that holds ``walle_stream``.

- ``{"root", "source", "file"}`` asks whether a script passes here. The answer is
  ``{"tag"}``, the interpreter's ``sys.implementation.cache_tag``.
- ``{"root", "imports"}`` asks for the modules that these modules import. The answer
  is ``{"tag", "base", "modules"}``: ``base`` for the guest library, ``modules`` for
  the rest. Each is ``[bytecode in hexadecimal digits, [extension modules]]``. The
  modules are found by importing them, so this file may import at its head only
  modules that the guest library imports, too.

An error is ``{"error", "line", "column", "python"}``; line -1 means that the
interpreter itself is unsuitable.
"""

import json
import marshal
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

PYTHON_MIN: Final = (3, 13)
"""Oldest Python with isolated interpreters as we use them."""

# modules that C code may import in any script
_ALWAYS: Final = ("_pylong", "annotationlib", "copyreg", "time", "typing", "warnings")
# modules that allowed modules import at their use, not at their own import
_LATER: Final = {"datetime": ("_strptime",), "decimal": ("_pydecimal",)}
_OWN: Final = ("__main__", "walle_stream")


def main() -> None:
    """Answer the request on stdin; see the module's docstring."""
    request = json.load(sys.stdin)
    json.dump(_answer(request), sys.stdout)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if sys.implementation.name != "cpython" or sys.version_info < PYTHON_MIN:
        name = f"{sys.implementation.name} {sys.version.partition(' ')[0]}"
        return _error(f"it is {name}, but tasks need CPython 3.13 or newer", -1)
    sys.path.append(request["root"])
    tag = {"tag": sys.implementation.cache_tag}
    if "source" in request:
        return _checked(request["source"], request["file"]) or tag
    return {**tag, **_traced(request["imports"])}


def _traced(imports: Iterable[str]) -> dict[str, Any]:
    import_module("walle_stream.vm.guest.session")
    for name in _ALWAYS:
        _import_if_there(name)
    base = set(sys.modules)
    for name in imports:
        import_module(name)
        for later in _LATER.get(name, ()):
            import_module(later)
    traced = set(sys.modules) - base
    return {"base": _weighed(base), "modules": _weighed(traced)}


def _error(text: str, line: int, column: int = 0) -> dict[str, Any]:
    version = sys.version.partition(" ")[0]
    return {"error": text, "line": line, "column": column, "python": version}


def _import_if_there(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise


def _checked(source: str, file: str) -> dict[str, Any] | None:
    # program.compile_program needs packages that a bare interpreter does not have
    gate = import_module("walle_stream.vm.gate")
    try:
        gate.compile_script(source, file, file)
    except gate.ScriptProblem as problem:
        return _error(problem.text, problem.line, problem.column)
    return None


def _weighed(names: Iterable[str]) -> tuple[str, list[str]]:
    bytecode, extensions = [], []
    for name in sorted(names):
        spec = None if name.partition(".")[0] in _OWN else _spec(name)
        if spec is None or spec.origin in {"built-in", "frozen"}:
            continue
        if type(spec.loader).__name__ == "ExtensionFileLoader":
            extensions.append(name)
        else:
            source = spec.loader.get_source(name)
            code = compile(source, f"<{name}>", "exec", dont_inherit=True, optimize=2)
            bytecode.append(marshal.dumps(code))
    return b"".join(bytecode).hex(), extensions


def _spec(name: str) -> Any:
    # None for a second name of a module (os.path)
    spec = getattr(sys.modules[name], "__spec__", None)
    if spec is not None and spec.name == name:
        return spec
    # or the module's own file replaces it by another one (collections.abc in 3.13)
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules[parent], "__path__", ()) if parent else None
    return import_module("importlib.machinery").PathFinder.find_spec(name, path)


if __name__ == "__main__":
    main()
