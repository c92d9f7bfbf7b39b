"""The guest library as bytecode, and what boots a VM with it.

The modules of ``walle_stream.vm.guest`` are compiled once per process under
the package name ``walle_guest``; a VM unmarshals and executes them. It needs
neither walle_stream nor any installed package on its path: its path is the
standard library alone.
"""

import ast
import marshal
import sysconfig
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import CodeType
from typing import Final

_SOURCE_PACKAGE: Final = "walle_stream.vm.guest"
_PACKAGE: Final = "walle_guest"
# each after those it imports
_MODULES: Final = (
    "rules",
    "layout",
    "stopping",
    "auditing",
    "delegation",
    "reading",
    "naming",
    "sealing",
    "modules",
    "restricted",
    "codec",
    "events",
    "page",
    "reply",
    "state",
    "tensors",
    "requests",
    "deferral",
    "context",
    "outcome",
    "migration",
    "exchange",
    "session",
)
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
    folder = files(_SOURCE_PACKAGE)
    bundle = []
    for name in ("__init__", *_MODULES):
        source = folder.joinpath(f"{name}.py").read_text(encoding="utf-8")
        full_name = _PACKAGE if name == "__init__" else f"{_PACKAGE}.{name}"
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_SOURCE_PACKAGE):
                node.module = _PACKAGE + (node.module or "").removeprefix(_SOURCE_PACKAGE)
        bundle.append(
            (full_name, compile(tree, f"<{full_name}>", "exec", dont_inherit=True, optimize=2))
        )
    return marshal.dumps(bundle)


@cache
def boot_code() -> CodeType:
    """Return what to execute first in a VM, once ``_bundle`` is set there."""
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
