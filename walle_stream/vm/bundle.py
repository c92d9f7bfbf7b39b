"""The guest library as bytecode, and the code that boots a VM with it.

The modules of ``walle_stream.vm.guest`` are compiled once per process under
the package name ``walle_guest``; a VM unmarshals and executes them. The path of
a VM has the standard library alone, without walle_stream or installed packages.
"""

import ast
import marshal
import re
import sysconfig
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files
from pathlib import Path
from types import CodeType
from typing import Final

_SOURCE_PACKAGE: Final = "walle_stream.vm.guest"
_OUR_PACKAGES: Final = re.compile(r"^walle_stream\.vm\.(guest|process)\b")

GUEST_PACKAGE: Final = "walle_guest"
"""Name of the guest library inside a VM."""
_BOOT: Final = """
import sys
sys.path[:] = {paths!r}
sys.meta_path[:] = [f for f in sys.meta_path if f.__module__.startswith("_frozen_importlib")]
sys.path_importer_cache.clear()
sys.stdin = sys.stdout = sys.stderr = None
sys.unraisablehook = lambda _: None

def _boot(bundle):
    import marshal
    from types import ModuleType
    for name, code in marshal.loads(bundle):
        module = ModuleType(name)
        if "." not in name:
            module.__path__ = []
        sys.modules[name] = module
        exec(code, module.__dict__)

_boot(_bundle)
del _boot, _bundle
"""


@cache
def guest_bundle() -> bytes:
    """Return the marshalled modules of ``walle_guest``: [(name, code), ...]."""
    trees = {
        file.name.removesuffix(".py"): parse_guest(_SOURCE_PACKAGE, file.name)
        for file in sorted(files(_SOURCE_PACKAGE).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".py")
    }
    imports = {
        name: sorted({"__init__", *_siblings(tree)} & trees.keys() - {name})
        for name, tree in trees.items()
    }
    bundle = []
    for name in TopologicalSorter(imports).static_order():  # each module after its imports
        full_name = GUEST_PACKAGE if name == "__init__" else f"{GUEST_PACKAGE}.{name}"
        bundle.append((full_name, compile_guest(trees[name], full_name)))
    return marshal.dumps(bundle)


def parse_guest(package: str, file: str) -> ast.Module:
    """Parse a module that runs in a VM; its imports of our packages get their names there."""
    tree = ast.parse(files(package).joinpath(file).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            node.module = _OUR_PACKAGES.sub(GUEST_PACKAGE, node.module)
    return tree


def compile_guest(tree: ast.Module, full_name: str) -> CodeType:
    """Compile a module that runs in a VM; its file name marks our code when a run is stopped."""
    return compile(tree, f"<{full_name}>", "exec", dont_inherit=True, optimize=2)


def _siblings(tree: ast.Module) -> set[str]:
    # ``from walle_guest import x`` gives the name x
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(GUEST_PACKAGE):
            names.add((node.module or "").rpartition(".")[2])
            names.update(alias.name for alias in node.names)
    return names


@cache
def boot_code() -> CodeType:
    """Return the first code to execute in a VM, which needs ``_bundle`` set there."""
    standard = Path(sysconfig.get_path("stdlib"))
    version = sysconfig.get_python_version().replace(".", "")
    candidates = (
        standard.parent / f"python{version}.zip",
        standard,
        Path(sysconfig.get_path("platstdlib")),
        standard / "lib-dynload",
    )
    paths = list(dict.fromkeys(str(path) for path in candidates if path.exists()))
    destshared = sysconfig.get_config_var("DESTSHARED")
    if destshared and destshared not in paths:
        paths.append(destshared)
    return compile(_BOOT.format(paths=paths), "<walle boot>", "exec", dont_inherit=True)
