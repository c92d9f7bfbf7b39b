"""Standard modules as a script gets them: read-only proxies.

A proxy holds the public names of its module and nothing else: no other module,
no mutable container. Proxies are made when a VM is bound to a task, so that no
import runs during a call. All runs of a VM see the same proxies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Never

from walle_stream.vm.guest.rules import ALLOWED_MODULES, WITHHELD, hint, is_refused_name
from walle_stream.vm.guest.sealing import seal

type Importer = Callable[..., ModuleType]
"""What ``__import__`` is: (name, globals, locals, fromlist, level) -> module."""

_LEAKING_TYPES: Final = (ModuleType, dict, list, set, bytearray)
_CAPSULE: Final = "PyCapsule"
# What builtins written in C import when they need it, through the importer of
# the script that called them: date and number formats, long division, generic classes.
# A script that names one gets an empty module.
_INTERNAL_MODULES: Final = frozenset(
    {
        *("_pydecimal", "_pylong", "_strptime", "annotationlib", "copyreg", "time", "typing"),
        "warnings",
    }
)


class ReadOnlyModule(ModuleType):
    """Stands for a standard module inside a script."""

    def __setattr__(self, name: str, value: object) -> Never:
        """Refuse: what one run sets, another would see.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"module {self.__name__!r} is read-only, {name!r} cannot be set")

    def __delattr__(self, name: str) -> Never:
        """Refuse: what one run deletes, another would miss.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"module {self.__name__!r} is read-only, {name!r} cannot be deleted")


def exported_names(name: str) -> dict[str, Any]:
    """Return what a script gets of an allowed module: values by name."""
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
    """Import modules and return the ``__import__`` that hands their proxies out."""
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
            import_module(name)  # C code takes it from sys.modules, not from here
            seal()
            return ReadOnlyModule(name)
        if proxy is None:
            raise ImportError(
                f"a task's script may not import {name!r}{hint(name)}", name=str(name)
            )
        if fromlist:
            # what is missing the interpreter would look for as a real module
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
    # ``import collections.abc`` binds the parent, whole
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
