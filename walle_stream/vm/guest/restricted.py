"""Builtins of a script, and the guards around attributes.

The host's gate rewrites some places of a script before it is compiled, so that they
pass a guard at run time:

- every attribute that is set or deleted (``STORE_GUARD``);
- ``format`` and ``format_map``, whose templates can access attributes by name, and
  some other attributes (``FORMAT_GUARD``; ``reading``);
- the source of ``yield from`` (``delegation.YIELD_GUARD``).

The rewritten code uses names of guards that no script can write.
"""

import builtins
import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import GenericAlias
from typing import Any, Final, Never

from walle_stream.vm.guest.delegation import YIELD_GUARD, merge, yield_source
from walle_stream.vm.guest.modules import Importer
from walle_stream.vm.guest.naming import TypedDictForm, dataclass
from walle_stream.vm.guest.reading import FORMAT_ATTRIBUTES, GUARDED_ATTRIBUTES, read, store_target
from walle_stream.vm.guest.rules import ALLOWED_BUILTINS, hint, is_refused_name
from walle_stream.vm.guest.sealing import STRUCT_NAMES, seal

STORE_GUARD: Final = "@store"
"""Name in rewritten code of the guard around the target of a store."""

FORMAT_GUARD: Final = "@format"
"""Name in rewritten code of the guard that reads ``GUARDED_ATTRIBUTES``."""

_MATCH_ARGS: Final = "__match_args__"


def is_plain_name(name: str) -> bool:
    """Return whether an attribute may be read without a guard."""
    return not is_refused_name(name) and name not in GUARDED_ATTRIBUTES


# the same as string.Formatter.parse, without importing ``string``
_parse_template: Final = import_module("_string").formatter_parser


def _guarded_attribute(value: Any, name: str) -> Any:
    return _format_attribute(value, name) if name in FORMAT_ATTRIBUTES else read(value, name)


def _format_attribute(value: Any, name: str) -> Any:
    method = getattr(value, name)
    owner = getattr(method, "__self__", None)  # behind super() and aliases, too
    text = owner if isinstance(owner, str) else value
    if isinstance(text, str):

        def format_this(*args: Any, **fields: Any) -> str:
            _check_template(text)
            return str(method(*args, **fields))

        return format_this
    is_of_text = getattr(method, "__objclass__", None) is str
    if is_of_text or (isinstance(value, type) and issubclass(value, str)):

        def format_that(template: str, *args: Any, **fields: Any) -> str:
            _check_template(template)
            return str(method(template, *args, **fields))

        return format_that
    return method


def _check_template(template: str) -> None:
    for _, field, spec, _ in _parse_template(template):
        if field:
            for part in field.replace("[", ".").replace("]", ".").split("."):
                _check_name(part)
        if spec:
            _check_template(spec)


def _check_name(name: object) -> str:
    if type(name) is not str:
        raise TypeError("attribute name must be text")
    if is_refused_name(name):
        raise AttributeError(f"a task's script may not use the attribute {name!r}{hint(name)}")
    return name


def _getattr(target: Any, name: str, *default: Any) -> Any:
    if _check_name(name) in GUARDED_ATTRIBUTES:
        return _guarded_attribute(target, name)
    return getattr(target, name, *default)


def _hasattr(target: Any, name: str) -> bool:
    return hasattr(target, _check_name(name))


def _setattr(target: Any, name: str, value: Any) -> None:
    setattr(store_target(target), _check_stored(name), value)


def _delattr(target: Any, name: str) -> None:
    delattr(store_target(target), _check_stored(name))


def _check_stored(name: object) -> str:
    if name == _MATCH_ARGS:
        raise AttributeError(f"a task's script may not set {name!r}: give it to the class's body")
    return _check_name(name)


class _IsType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        # a subclass is an ordinary class; otherwise its patterns could read any class
        return isinstance(instance, type) if cls is _Type else type.__instancecheck__(cls, instance)


_FACE: Final = "_face_"


class _Face(type):
    # metaclass of the stand-ins that a script gets for classes of this library: a stand-in
    # makes no object, and all objects of the class are its instances

    def __call__(cls, *_: Any, **__: Any) -> Never:
        raise TypeError(f"a task's script may not make a {cls.__name__!r} object")

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls.__bases__[0], instance)

    def __subclasscheck__(cls, class_: type[Any]) -> bool:
        return type.__subclasscheck__(cls.__bases__[0], class_)


def _make_faces() -> None:
    package = f"{__name__.rpartition('.')[0]}."
    for name, module in tuple(sys.modules.items()):
        for class_ in vars(module).values() if name.startswith(package) else ():
            is_ours = isinstance(class_, type) and class_.__module__ == name
            if is_ours and class_ is not _Type and not issubclass(class_, type):
                type.__setattr__(class_, _FACE, _face(class_))


def _face(class_: type[Any]) -> type[Any]:
    def refuse(cls: type[Any], /, **_: Any) -> Never:
        raise TypeError(f"a task's script may not make a class of {cls.__bases__[0].__name__!r}")

    kind: Any = type("_Face", (_Face, type(class_)), {})
    body = {
        "__module__": class_.__module__,
        "__doc__": class_.__doc__,
        "__slots__": (),
        "__init_subclass__": classmethod(refuse),
    }
    face: type[Any] = type.__new__(kind, class_.__name__, (class_,), body)
    return face


class _Type(metaclass=_IsType):
    # ``type`` without its three-argument form, which makes any class at all

    def __new__(cls, value: Any, /) -> type[Any]:  # type: ignore[misc] # the same result as type(x)
        class_ = type(value)
        # the class of a class is a ``type`` again, which makes any class; the class of an
        # alias, such as list[int], makes an alias of anything, and sets its attributes
        is_maker = issubclass(class_, (type, GenericAlias)) or class_.__module__ == "typing"
        return _Type if is_maker else getattr(class_, _FACE, class_)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls  # for annotations; ``type[item]`` could be called as the real one


def _total_ordering(class_: type[Any]) -> type[Any]:
    return functools.total_ordering(store_target(class_))


def _abstractmethod(function: Any) -> Any:
    return import_module("abc").abstractmethod(store_target(function))


def deepcopy(value: Any) -> Any:
    """Copy like ``copy.deepcopy``, without a memo, which could replace any part."""
    return import_module("copy").deepcopy(value)


def _wraps(wrapped: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda wrapper: functools.update_wrapper(store_target(wrapper), wrapped)


REPLACED_NAMES: Final[Mapping[str, Mapping[str, object]]] = {
    "abc": {"abstractmethod": _abstractmethod},
    "copy": {"deepcopy": deepcopy},
    "dataclasses": {"dataclass": dataclass},
    "functools": {"total_ordering": _total_ordering, "wraps": _wraps},
    "heapq": {"merge": merge},
    "struct": STRUCT_NAMES,
    "typing": {"TypedDict": TypedDictForm()},
}
"""Replacements by module for functions that write to a class, keep a key, or delegate to
an object of the script."""


def make_builtins(importer: Importer) -> dict[str, Any]:
    """Return the ``__builtins__`` of a script.

    All runs of a VM share the dictionary, which a script cannot reach. It has no
    ``print``, because each run has its own.
    """
    seal()
    _make_faces()
    restricted: dict[str, Any] = {name: getattr(builtins, name) for name in ALLOWED_BUILTINS}
    restricted["__import__"] = importer
    restricted["delattr"] = _delattr
    restricted["getattr"] = _getattr
    restricted["hasattr"] = _hasattr
    restricted["setattr"] = _setattr
    restricted["type"] = _Type
    restricted[STORE_GUARD] = store_target
    restricted[FORMAT_GUARD] = _guarded_attribute
    restricted[YIELD_GUARD] = yield_source
    return restricted
