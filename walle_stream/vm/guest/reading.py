"""Attributes that a script reads through a guard, which checks their values.

- ``__init__`` and similar methods written in Python write to any object. Taken from
  a class, they could write to a function of the library, which all runs share. Called
  on an object of ours, they would initialise it again.
- A view of a dictionary gives the dictionary itself to the other side of a comparison.
- Times without a zone use the machine's zone.
"""

from collections.abc import Callable
from importlib import import_module
from types import BuiltinMethodType, FunctionType, MappingProxyType, MethodDescriptorType
from typing import Any, Final

SCRIPT_MODULE: Final = "task"
"""``__name__`` in a script, and thus the module of its classes and functions."""

FORMAT_ATTRIBUTES: Final = frozenset({"format", "format_map"})
"""Attributes whose templates access other attributes by name."""

_WRITERS: Final = frozenset({"__init__", "seed", "setstate"})
_VIEWS: Final = frozenset({"groupindex", "metadata"})
_ZONED: Final = frozenset({"astimezone", "fromtimestamp", "timestamp"})

# kinds of the library's methods; a script's own method of the same name is another kind
_IN_C: Final = (BuiltinMethodType, MethodDescriptorType)

GUARDED_ATTRIBUTES: Final = FORMAT_ATTRIBUTES | _WRITERS | _VIEWS | _ZONED
"""Attributes that only a guard reads: ``read``, or another for ``FORMAT_ATTRIBUTES``."""


def is_of_script(value: object) -> bool:
    """Return whether a class, a function or an object is a script's own."""
    if type(value).__module__ == SCRIPT_MODULE:
        return True
    return isinstance(value, (type, FunctionType)) and value.__module__ == SCRIPT_MODULE


def store_target(target: Any) -> Any:
    """Return the target of a store if it is the script's own; others could outlive the run.

    Raises:
        AttributeError: The target is not the script's own.
    """
    if is_of_script(target):
        return target
    raise AttributeError(
        f"a {type(target).__name__!r} object is read-only for a task's script: it may set "
        "attributes of its own classes, functions and their instances only"
    )


def read(value: Any, name: str) -> Any:
    """Read one of ``GUARDED_ATTRIBUTES`` except ``FORMAT_ATTRIBUTES`` for a script.

    Raises:
        AttributeError: The attribute is missing, or a script may not read it there.
    """
    attribute = getattr(value, name)
    if name in _VIEWS:
        return attribute.copy() if type(attribute) is MappingProxyType else attribute
    if name in _ZONED:
        return _zoned(name, attribute)
    # a method found by super() may be bound to any object, or to none
    owner = getattr(attribute, "__self__", None) if type(value) is super else value
    if owner is None or isinstance(owner, type):
        return _unbound(name, attribute)
    if name == "seed" and isinstance(attribute, _IN_C):
        raise AttributeError("seed: only that of ctx.random's own class gives repeatable numbers")
    if is_of_script(owner) or name != "__init__":
        return attribute
    kind = type(owner).__name__
    raise AttributeError(
        f"a {kind!r} object exists already: a task's script may not initialise it again"
    )


def _unbound(name: str, method: Any) -> Callable[..., Any]:
    def checked(self: Any, /, *values: Any, **named: Any) -> Any:
        if type(self).__module__ != SCRIPT_MODULE:
            raise TypeError(
                f"{name} is for objects of a script's own classes, "
                f"not for a {type(self).__name__!r} object"
            )
        return method(self, *values, **named)

    return checked


def _zoned(name: str, method: Any) -> Any:
    # checks the method wherever it was found: in a class, in a script's subclass, by super()
    if not isinstance(method, _IN_C):
        return method
    if name == "fromtimestamp":

        def from_timestamp(moment: float, tz: Any = None) -> Any:
            return method(moment, tz=_zone(tz, name))

        return from_timestamp

    def zoned(*values: Any, **named: Any) -> Any:
        owner = getattr(method, "__self__", None)
        moment, *zones = values if owner is None else (owner, *values)
        # the library's method, because a script's own could return anything
        _zone(import_module("datetime").datetime.utcoffset(moment), name)
        zones += named.values()
        if name == "astimezone":
            _zone(zones[0] if zones else None, name)
        return method(*values, **named)

    return zoned


def _zone(zone: Any, name: str) -> Any:
    if zone is None:
        raise TypeError(
            f"{name}: give a time zone, such as UTC: a script does not see the machine's zone"
        )
    return zone
