"""Sealing of everything that the runs of a VM share, so that no run can leave data there.

A run gets its own globals, but shares its interpreter's standard library. ``seal``
checks every imported module and closes each place to which a script could write, or
in which it could leave an object:

- Containers in class attributes and in defaults of functions become immutable.
- Functions with a cache (``lru_cache``) lose the cache.
- Properties, also of the guest library, keep their names: a script's class that has
  a property in its body would rename it.
- Flags that remember each combination (``enum``) keep plain numbers, within a bound.
- Caches of ``re``, ``struct``, ``typing`` and dates take keys of builtin classes, or
  are removed. A text of a script's own class would stay there with all its references,
  and its ``__eq__`` would be called in the next run.
- Random numbers of the process need a seed.
- Methods that set attributes (``_stores``) take objects of their class only, like
  methods written in C.
- Functions that turn text into code (``_through_window``) pass through a window in the
  audit hook, and their names through ``naming``.

The closed-world test walks everything that a script can reach, and fails for any
place that is not sealed.
"""

import builtins
import opcode
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, Never

from walle_stream.vm.guest.auditing import TEXT_WINDOW
from walle_stream.vm.guest.delegation import guard_views
from walle_stream.vm.guest.naming import check_tuple_code, guard_enumerations
from walle_stream.vm.guest.rules import ALLOWED_MODULES, is_refused_name

_CACHED: Final = type(lru_cache(len))
_CONTAINERS: Final = (dict, list, set, bytearray)
_FLAG_BITS: Final = 12
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
# the allowed modules, and the module of ``ctx.random``
_LIBRARY: Final = frozenset(
    # typing uses objects of annotationlib's classes (3.14)
    {"annotationlib", "random", *(name.partition(".")[0] for name in ALLOWED_MODULES)}
)
_NO_CODE: Final = compile("None", "<annotation>", "eval")
_STORES: Final = frozenset(opcode.opmap[name] for name in ("STORE_ATTR", "DELETE_ATTR"))
_STORE_NAMES: Final = frozenset(
    {"setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "vars"}
)
_TAKES_MORE: Final = 0x0C  # CO_VARARGS, CO_VARKEYWORDS
_sealed: Final[set[str]] = set()


class FixedMapping(Mapping[Any, Any]):
    """An immutable mapping that never exposes a mutable dictionary."""

    __slots__ = ("_items_",)

    def __init__(self, items: Mapping[Any, Any]) -> None:
        """Copy a dictionary."""
        self._items_ = tuple(items.items())

    def __getitem__(self, key: Any) -> Any:
        """Return the value of a key; KeyError if it is missing."""
        return dict(self._items_)[key]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys, in order."""
        return iter(dict(self._items_))

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._items_)


class _Fixed(tuple[Any, ...]):
    """An immutable list; like lists, two of them are never the same object."""

    __slots__ = ()


class _FixedProperty(property):
    """A property that ignores the name in a script's class, which the next run would read."""

    __slots__ = ()

    def __set_name__(self, owner: type[Any], name: str, /) -> None:
        """Keep the name of the function."""


class _Members(dict[Any, Any]):
    # members of a library's flags by value: a member without a name is made again at each
    # access, except for plain numbers of few bits
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(plain_key(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is int and 0 <= key < 1 << _FLAG_BITS:
            super().__setitem__(key, value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if type(key) is int and 0 <= key < 1 << _FLAG_BITS:
            return super().setdefault(key, default)
        return default


def plain_key(value: Any) -> Any:
    """Return a text, bytes or whole number as an object of the builtin class.

    Raises:
        TypeError: The value is none of these.
    """
    if isinstance(value, str):
        return "".join((value,))  # noqa: FLY002 - an f-string asks the text for its format
    if isinstance(value, int):
        return int.__add__(value, 0)
    try:
        return b"".join((value,))
    except TypeError:
        raise TypeError(f"expected text or bytes, not {type(value).__name__}") from None


def seal() -> None:
    """Seal the imported modules of this interpreter, each once; about 2 ms for all."""
    for name, module in tuple(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name not in _sealed and not getattr(spec, "_initializing", False):
            _sealed.add(name)
            if name in _BY_NAME:
                _BY_NAME[name](module)
            if name.partition(".")[0] in _LIBRARY:
                _seal_module(module)
            else:
                _seal_properties(module)


def seal_imports() -> None:
    """From now on, also seal modules that the library imports later, during a run."""
    modules, import_ = sys.modules, builtins.__import__

    def sealing_import(*arguments: Any, **options: Any) -> ModuleType:
        count = len(modules)
        module = import_(*arguments, **options)
        if len(modules) != count:
            seal()
        return module

    builtins.__import__ = sealing_import


def _seal_module(module: ModuleType) -> None:
    fixed: dict[int, tuple[Any, Any]] = {}
    for key, value in tuple(vars(module).items()):
        if not isinstance(value, type):
            _seal_value(module, key, value, fixed)
        elif value.__flags__ & _HEAP_TYPE and value.__module__ in sys.modules:
            _seal_class(value, fixed)
    for key, value in tuple(vars(module).items()):
        if id(value) in fixed:
            setattr(module, key, fixed[id(value)][1])


def _seal_properties(module: ModuleType) -> None:
    for class_ in tuple(vars(module).values()):
        if isinstance(class_, type) and class_.__module__ == module.__name__:
            for key, value in tuple(vars(class_).items()):
                # a name that the metaclass has, too, cannot be replaced from outside
                if type(value) is property and not hasattr(type(class_), key):
                    setattr(class_, key, _fixed_property(value))


def _fixed_property(value: property) -> property:
    return _FixedProperty(value.fget, value.fset, value.fdel, value.__doc__)


def _seal_class(class_: type[Any], fixed: dict[int, tuple[Any, Any]]) -> None:
    own = dict(vars(class_))
    # the library compares a protocol's __init__ with the common one, which must stay
    if getattr(own.get("__init__"), "__qualname__", "") != f"{class_.__qualname__}.__init__":
        own.pop("__init__", None)
    members: Any = class_
    if "_flag_mask_" in own and type(members._value2member_map_) is dict:
        members._value2member_map_ = _Members(members._value2member_map_)
    for key, value in own.items():
        if type(value) not in _CONTAINERS:
            _seal_value(class_, key, value, fixed)
        elif not is_refused_name(key):
            setattr(class_, key, _fixed(value, fixed))
        if type(value) is FunctionType and not is_refused_name(key) and _stores(value.__code__):
            setattr(class_, key, _of_class(class_, value))


def _stores(code: CodeType) -> bool:
    # returns whether code may set an attribute; a false positive does no harm
    return (
        not _STORES.isdisjoint(code.co_code[::2])
        or not _STORE_NAMES.isdisjoint(code.co_names)
        or any(isinstance(each, CodeType) and _stores(each) for each in code.co_consts)
    )


def _of_class(class_: type[Any], method: FunctionType) -> Callable[..., Any]:
    # taken from its class, the method could write to a function that all runs share
    def checked(self: Any, /, *values: Any, **named: Any) -> Any:
        if class_ not in type(self).__mro__:
            raise TypeError(
                f"{method.__name__} is for {class_.__name__!r} objects, "
                f"not for a {type(self).__name__!r} object"
            )
        return method(self, *values, **named)

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(checked, name, getattr(method, name))
    return checked


def _seal_value(owner: Any, key: str, value: Any, fixed: dict[int, tuple[Any, Any]]) -> None:
    kind = type(value)
    if kind is classmethod or kind is staticmethod:
        _seal_value(owner, key, value.__func__, fixed)
    elif kind is property:
        setattr(owner, key, _fixed_property(value))
    elif kind is _CACHED:
        code = value.__wrapped__.__code__
        if code.co_argcount or code.co_kwonlyargcount or code.co_flags & _TAKES_MORE:
            setattr(owner, key, value.__wrapped__)
    elif kind is FunctionType and any(
        type(default) in _CONTAINERS for default in value.__defaults__ or ()
    ):
        value.__defaults__ = tuple(_fixed(default, fixed) for default in value.__defaults__)


def _fixed(value: Any, fixed: dict[int, tuple[Any, Any]]) -> Any:
    # one object in two places stays one object
    kind = type(value)
    if kind not in _CONTAINERS:
        return value
    if id(value) not in fixed:
        constant: Any = FixedMapping(value) if kind is dict else _Fixed(value)
        fixed[id(value)] = value, constant
    return fixed[id(value)][1]


def _through_window(
    function: Callable[..., Any], check: Callable[[str], None] | None = None
) -> Callable[..., Any]:
    # the only place where text becomes code
    def call(text: str, *arguments: Any, **options: Any) -> Any:
        if check is not None:
            check(text)
        TEXT_WINDOW[0] += 1
        try:
            return function(text, *arguments, **options)
        finally:
            TEXT_WINDOW[0] -= 1

    return call


def _seal_ast(module: Any) -> None:
    parse = _through_window(compile)

    def parse_only(text: str, file: str, mode: str, flags: int = 0, **more: Any) -> Any:
        # only for text that becomes a tree: ``dataclass`` reads signatures of C functions
        return (parse if flags & module.PyCF_ONLY_AST else compile)(text, file, mode, flags, **more)

    module.compile = parse_only


def _seal_collections(module: Any) -> None:
    module.eval = _through_window(eval, check_tuple_code)  # noqa: S307 - of checked text


def _seal_dataclasses(module: Any) -> None:
    module.exec = _through_window(exec)  # the names in it were checked by ``naming.dataclass``


def _seal_functools(module: Any) -> None:
    update = module.update_wrapper

    def update_wrapper(
        wrapper: Any,
        wrapped: Any,
        assigned: Any = module.WRAPPER_ASSIGNMENTS,
        updated: Any = module.WRAPPER_UPDATES,
    ) -> Any:
        # a class's dictionary has functions that no guard has checked
        has_own = type(getattr(wrapped, "__dict__", None)) is dict
        return update(wrapper, wrapped, assigned, updated if has_own else ())

    module.update_wrapper = update_wrapper


def _seal_random(module: Any) -> None:
    seed = module.Random.seed

    def seeded(self: Any, a: Any = None, version: int = 2) -> None:
        if a is None:
            raise TypeError("seed: give a number or a text, or the numbers cannot be repeated")
        seed(self, a, version)

    def refused() -> Never:
        raise TypeError("give a seed, such as ctx.random.random()")

    module.Random.seed = seeded
    module.random = refused  # the process's own generator, which another run would continue


def _seal_time(module: Any) -> None:
    # results must not depend on the machine's time zone
    strftime = module.strftime

    def zoneless(text: str, *moment: Any) -> Any:
        for part in text.replace("%%", "").split("%")[1:]:
            if part.lstrip("-_0^#+EO123456789").startswith("s"):
                raise ValueError("%s depends on the machine's time zone: use timestamp()")
        return strftime(text, *moment)

    module.strftime = zoneless
    module.tzname, module.daylight = ("UTC", "UTC"), 0
    if hasattr(module, "tzset"):
        del module.tzset  # it would read the machine's zone again


def _seal_annotations(module: Any) -> None:
    module.compile = lambda *_, **__: _NO_CODE  # names in annotations are never looked up

    def refused(*_: Any, **__: Any) -> Never:
        raise TypeError("a task's script may not evaluate annotations")

    if hasattr(module, "call_annotate_function"):
        # it copies a script's own function, for names that do not exist yet
        types = ModuleType("types")
        vars(types).update(vars(module.types), FunctionType=_through_window(FunctionType))
        module.types = types
    # evaluation would look names up in the real builtins, without an audit event
    for name in ("evaluate", "_evaluate"):
        if hasattr(module.ForwardRef, name):
            setattr(module.ForwardRef, name, refused)


def _seal_typing(module: Any) -> None:
    caches: dict[Any, Any] = vars(module).get("_caches", {})
    # subscripts are for annotations, which are rare, and fast without a cache
    caches.update({function: function for function in caches})
    if sys.version_info < (3, 14):
        _seal_annotations(module)


def _seal_string(module: Any) -> None:
    _ = module.Template.pattern  # 3.14 compiles it at the first use, and sets the class's flags


def _seal_textwrap(module: Any) -> None:
    wrapper = module.TextWrapper
    spaces = wrapper.unicode_whitespace_trans
    # a text works as the table, too, and is immutable
    wrapper.unicode_whitespace_trans = "".join(
        chr(spaces.get(code, code)) for code in range(max(spaces) + 1)
    )


def _give_plain_keys(module: Any) -> None:
    # for the caches of patterns, which also take compiled patterns, and of date formats
    pattern = getattr(module, "Pattern", None)

    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *keys: function(*(k if type(k) is pattern else plain_key(k) for k in keys))

    for name in ("_compile", "_compile_template", "_strptime"):
        if hasattr(module, name):
            setattr(module, name, plain(getattr(module, name)))


def _with_plain_format(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(format: Any, /, *values: Any, **named: Any) -> Any:  # noqa: A002 - its name there
        return function(plain_key(format), *values, **named)

    return call


STRUCT_NAMES: Final = {
    name: _with_plain_format(getattr(struct, name))
    for name in ("calcsize", "iter_unpack", "pack", "pack_into", "unpack", "unpack_from")
}
"""Functions of ``struct`` whose cache gets plain formats only."""

_BY_NAME: Final[Mapping[str, Callable[[Any], None]]] = {
    "_collections_abc": guard_views,
    "_strptime": _give_plain_keys,
    "annotationlib": _seal_annotations,
    "ast": _seal_ast,
    "collections": _seal_collections,
    "dataclasses": _seal_dataclasses,
    "enum": guard_enumerations,
    "functools": _seal_functools,
    "random": _seal_random,
    "re": _give_plain_keys,
    "string": _seal_string,
    "textwrap": _seal_textwrap,
    "time": _seal_time,
    "typing": _seal_typing,
}
