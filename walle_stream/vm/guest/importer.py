"""What a VM can import once it is bound to a package: the package, and the runtime.

Standard modules beyond the runtime come as bytecode in the package; those of
the runtime (what this library imports itself, and the interpreter's own C
modules) from the interpreter. There is no third place: no source of a task, no
installed package, no folder of the machine.
"""

import marshal
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class PackageImporter:
    """Finder and loader of a package's modules."""

    def __init__(self, modules: Iterable[tuple[str, bool, bytes]], runtime: Iterable[str]) -> None:
        """Take the modules; nothing is unmarshalled before it is imported.

        Args:
            modules: (name, whether it is a package, marshalled code).
            runtime: Modules that the interpreter brings.
        """
        self._modules = {name: (is_package, code) for name, is_package, code in modules}
        self._runtime = frozenset(runtime)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module; run by the interpreter's import.

        Args:
            name: Full name.
            path: Of its parent package.
            target: The module that is loaded again, if any.
        """
        found = self._modules.get(name)
        if found is not None:
            return ModuleSpec(name, self, origin=f"<{name}>", is_package=found[0])  # type: ignore[arg-type] # a loader by its methods
        if name in self._runtime:
            return PathFinder.find_spec(name, path, target)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave making the module to the interpreter.

        Args:
            spec: The module's.
        """

    def exec_module(self, module: ModuleType) -> None:
        """Execute a module's code.

        Args:
            module: To be filled.
        """
        code: Any = marshal.loads(self._modules[module.__name__][1])  # noqa: S302 - hashes were checked by the host
        exec(code, module.__dict__)


def import_from_package(packed: bytes, runtime: Iterable[str]) -> None:
    """Let this interpreter import from a package from now on, and nothing else.

    Args:
        packed: Marshalled modules, as in ``PackageImporter``.
        runtime: Modules that the interpreter brings.
    """
    modules = marshal.loads(packed)  # noqa: S302 - made by the host
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PackageImporter(modules, runtime)]
    sys.path_importer_cache.clear()
