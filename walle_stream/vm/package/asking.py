"""What another interpreter says of a script, or of the modules that one needs; runs inside it.

``build`` starts the interpreter with this file as its program (``-I -S -B``),
writes one request to its stdin and reads one answer, both JSON. It needs
nothing but its standard library and the folder that holds ``walle_stream``.

- ``{"root", "source", "file"}``: does a script pass here? Answer: ``{"tag"}``, the
  interpreter's ``sys.implementation.cache_tag``.
- ``{"root", "imports"}``: what do these modules bring with them? Answer:
  ``{"tag", "base", "modules"}``, each ``[bytecode in hexadecimal digits, [extension
  modules]]``: what the guest library needs itself, and what comes on top. It is
  found by importing and looking; what this file imports itself at its head must
  therefore be part of the guest library's own imports.

Or ``{"error", "line", "column", "python"}``; line -1: it is the interpreter that is wrong.
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
_LATER: Final = {"datetime": ("_strptime",), "decimal": ("_pydecimal",)}
_OWN: Final = ("__main__", "walle_stream")


def main() -> None:
    """Answer the request on stdin; see the module."""
    request = json.load(sys.stdin)
    json.dump(_answer(request), sys.stdout)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if sys.implementation.name != "cpython" or sys.version_info < PYTHON_MIN:
        name = f"{sys.implementation.name} {sys.version.partition(' ')[0]}"
        return _error(f"it is {name}, tasks need CPython 3.13 or newer", -1)
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
    # program.compile_program needs more than a bare interpreter has
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
    # None: a second name that a module gives itself or another one (os.path)
    spec = getattr(sys.modules[name], "__spec__", None)
    if spec is not None and spec.name == name:
        return spec
    # or its own file puts another module in its place (collections.abc in 3.13)
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules[parent], "__path__", ()) if parent else None
    return import_module("importlib.machinery").PathFinder.find_spec(name, path)


if __name__ == "__main__":
    main()
