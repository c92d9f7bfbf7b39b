"""Attributes that a script reads through a guard: what they lead to is looked at.

- ``__init__`` and the like, written in Python, write to whatever they are called
  on: taken from a class they would write to a function of the library, which all
  runs share, and called on an object of ours they would make it anew.
- What is a view of a dictionary hands the dictionary itself to whoever it is
  compared with.
- Times without a zone take the machine's.
"""

from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any, Final

SCRIPT_MODULE: Final = "task"
"""``__name__`` in a script: what its classes and functions say of themselves."""

FORMAT_ATTRIBUTES: Final = frozenset({"format", "format_map"})
"""Attributes whose templates walk attributes by name."""

_WRITERS: Final = frozenset({"__init__", "seed", "setstate"})
_VIEWS: Final = frozenset({"groupindex", "metadata"})
_ZONED: Final = frozenset({"astimezone", "fromtimestamp", "timestamp"})

READ_ATTRIBUTES: Final = _WRITERS | _VIEWS | _ZONED
"""Attributes that ``read`` reads."""


def is_of_script(value: object) -> bool:
    """Tell whether a class, a function or an object is a script's own.

    Args:
        value: Anything.
    """
    if type(value).__module__ == SCRIPT_MODULE:
        return True
    return isinstance(value, (type, FunctionType)) and value.__module__ == SCRIPT_MODULE


def store_target(target: Any) -> Any:
    """Return what a script sets attributes of, if it may: anything else could outlive the run.

    Args:
        target: The object.

    Raises:
        AttributeError: It is not the script's own.
    """
    if is_of_script(target):
        return target
    raise AttributeError(
        f"a {type(target).__name__!r} object is read-only for a task's script: it may set "
        "attributes of its own classes, functions and their instances only"
    )


def read(value: Any, name: str) -> Any:
    """Read an attribute for a script.

    Args:
        value: Whose.
        name: One of ``READ_ATTRIBUTES``.

    Raises:
        AttributeError: There is none, or a script may not take it from there.
    """
    found = getattr(value, name)
    if name in _VIEWS:
        return found.copy() if type(found) is MappingProxyType else found
    if name in _ZONED:
        return _zoned(value, name, found)
    if isinstance(value, type):
        return _of_class(value, name, found)
    # what super() found is bound to the script's own object
    if type(value) is super or is_of_script(value) or name != "__init__":
        return found
    kind = type(value).__name__
    raise AttributeError(f"a {kind!r} object is made once: a task's script may not do it again")


def _of_class(class_: type[Any], name: str, method: Any) -> Callable[..., Any]:
    def checked(self: Any, /, *values: Any, **named: Any) -> Any:
        kind = type(self)
        # not isinstance(): a class may be registered as another
        if kind.__module__ != SCRIPT_MODULE or not any(each is class_ for each in kind.__mro__):
            raise TypeError(
                f"{class_.__name__}.{name} is for objects of a script's own classes, "
                f"not for a {kind.__name__!r} object"
            )
        return method(self, *values, **named)

    return checked


def _zoned(value: Any, name: str, method: Any) -> Any:
    kind = value if isinstance(value, type) else type(value)
    if getattr(kind, "__module__", "") != "datetime":
        return method
    if name == "fromtimestamp":

        def from_timestamp(moment: float, tz: Any = None) -> Any:
            return method(moment, tz=_zone(tz, name))

        return from_timestamp
    if isinstance(value, type):

        def unbound(self: Any, *values: Any) -> Any:
            return _zoned(self, name, getattr(self, name))(*values)

        return unbound
    _zone(value.tzinfo, name)

    def zoned(*values: Any) -> Any:
        for each in values:
            _zone(each, name)
        if name == "astimezone" and not values:
            _zone(None, name)
        return method(*values)

    return zoned


def _zone(zone: Any, name: str) -> Any:
    if zone is None:
        raise TypeError(
            f"{name}: give a time zone, such as UTC: a script does not see the machine's"
        )
    return zone
