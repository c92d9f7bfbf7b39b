"""Read-only proxies of standard modules, which scripts get in their place.

A proxy holds the public names of its module, but no other module and no mutable
container. Proxies are made when a VM is bound to a task, so that no import runs
during a call. All runs of a VM see the same proxies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Never

from walle_stream.vm.guest.rules import ALLOWED_MODULES, WITHHELD, hint, is_refused_name
from walle_stream.vm.guest.sealing import seal

type Importer = Callable[..., ModuleType]
"""Signature of ``__import__``: (name, globals, locals, fromlist, level) -> module."""

_LEAKING_TYPES: Final = (ModuleType, dict, list, set, bytearray)
_CAPSULE: Final = "PyCapsule"
# Modules that builtins written in C import at need, through the importer of the calling
# script: date and number formats, long division, generic classes. A script that imports
# one of them gets an empty module.
_INTERNAL_MODULES: Final = frozenset(
    {
        *("_pydecimal", "_pylong", "_strptime", "annotationlib", "copyreg", "time", "typing"),
        "warnings",
    }
)


class ReadOnlyModule(ModuleType):
    """Proxy of a standard module inside a script."""

    def __setattr__(self, name: str, value: object) -> Never:
        """Refuse, because another run would see the change.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"module {self.__name__!r} is read-only, {name!r} cannot be set")

    def __delattr__(self, name: str) -> Never:
        """Refuse, because another run would miss the name.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"module {self.__name__!r} is read-only, {name!r} cannot be deleted")


def exported_names(name: str) -> dict[str, Any]:
    """Return the names that a script gets from an allowed module, with their values."""
    module = import_module(name)
    only = ALLOWED_MODULES[name]
    names: Iterable[str]
    if only is None:
        names = getattr(module, "__all__", None) or [
            public for public in vars(module) if not public.startswith("_")
        ]
    else:
        names = only
    exported = {}
    for public in sorted(names):
        value = getattr(module, public, None)
        if (
            public in WITHHELD
            or not hasattr(module, public)
            or is_refused_name(public)
            or (only is None and isinstance(value, _LEAKING_TYPES))
            or type(value).__name__ == _CAPSULE
        ):
            continue
        exported[public] = value
    return exported


def make_importer(
    names: Iterable[str],
    replacements: Mapping[str, Mapping[str, object]],
) -> Importer:
    """Import modules and return the ``__import__`` that returns their proxies."""
    proxies = _make_proxies(names, replacements)

    def import_(
        name: str,
        globals_: Mapping[str, object] | None = None,  # noqa: ARG001 - the builtin's signature
        locals_: Mapping[str, object] | None = None,  # noqa: ARG001 - the same
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        proxy = None if level else proxies.get(name)
        if proxy is None and name in _INTERNAL_MODULES and not level:
            import_module(name)  # C code takes it from sys.modules, not from the return value
            seal()
            return ReadOnlyModule(name)
        if proxy is None:
            raise ImportError(
                f"a task's script may not import {name!r}{hint(name)}", name=str(name)
            )
        if fromlist:
            # the interpreter would look for a missing name as a real module
            missing = [public for public in fromlist if public not in vars(proxy)]
            if missing:
                raise ImportError(f"{name!r} has no {missing[0]!r} for a script", name=name)
            return proxy
        return proxies[name.partition(".")[0]]

    return import_


def _make_proxies(
    names: Iterable[str], replacements: Mapping[str, Mapping[str, object]]
) -> dict[str, ModuleType]:
    proxies: dict[str, ModuleType] = {}
    wanted = set(names)
    # ``import collections.abc`` binds the whole parent module
    wanted |= {name.rpartition(".")[0] for name in wanted} & ALLOWED_MODULES.keys()
    for name in sorted(wanted):
        proxy = ReadOnlyModule(name)
        vars(proxy).update(exported_names(name))
        vars(proxy).update(replacements.get(name, {}))
        for hidden in ("__loader__", "__spec__"):
            vars(proxy).pop(hidden, None)
        proxies[name] = proxy
        parent, _, child = name.rpartition(".")
        if parent:
            if parent not in proxies:
                proxies[parent] = ReadOnlyModule(parent)
            vars(proxies[parent])[child] = proxy
    return proxies
