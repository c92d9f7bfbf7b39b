"""Names that a script may use: modules, builtins and attributes.

Both sides use this table. The host's gate refuses a script that breaks a rule when
it is loaded, with file and line. The guest refuses the same at run time.

The rules isolate scripts from each other and from the host: a script reaches no
mutable object that outlives a run, no frames, no modules and no type graph. They
also keep results repeatable: no wall clock, no salted hash, no entropy, and no time
zone of the machine; only the default ``repr`` of an object has its address. The rules
stop mistakes and accidents. A hostile script belongs in its own process.
"""

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_MODULES: Final[dict[str, frozenset[str] | None]] = {
    "__future__": None,
    "abc": _names("ABC abstractmethod"),
    "array": None,
    "base64": None,
    "binascii": None,
    "bisect": None,
    "collections": None,
    "collections.abc": None,
    "copy": _names("Error copy deepcopy replace"),
    "dataclasses": _names(
        "FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields "
        "is_dataclass replace"
    ),
    # decimal's current context is a mutable object per thread, which a VM's runs would share
    "decimal": _names(
        "Context Decimal DecimalException DivisionByZero Inexact InvalidOperation Overflow "
        "ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN "
        "ROUND_HALF_UP ROUND_UP Rounded Underflow"
    ),
    "datetime": _names("UTC date datetime time timedelta timezone tzinfo"),
    "enum": _names("Enum Flag IntEnum IntFlag StrEnum auto unique"),
    "fractions": _names("Fraction"),
    "functools": _names(
        "cache cached_property cmp_to_key lru_cache partial partialmethod reduce total_ordering "
        "wraps"
    ),
    "hashlib": None,
    "heapq": None,
    "hmac": _names("compare_digest digest new"),
    "itertools": None,
    "json": _names("JSONDecodeError JSONDecoder JSONEncoder dumps loads"),
    "math": None,
    "numbers": None,
    "operator": None,
    "re": None,
    "statistics": None,
    "string": None,
    "struct": None,
    "textwrap": None,
    "typing": _names(
        "Any Callable ClassVar Final Iterable Iterator Literal Mapping NamedTuple Optional "
        "Sequence TYPE_CHECKING TypedDict Union cast"
    ),
    "unicodedata": None,
    "zlib": None,
}
"""Modules that a script may import, with the names that it gets. None means all public
names except modules, mutable containers and names in ``WITHHELD``."""

WITHHELD: Final = frozenset(
    {
        "Formatter",  # string: accesses attributes by name
        "UserString",  # collections: its templates, which are not str, do the same
        "attrgetter",  # operator: the same
        "methodcaller",  # operator: the same
        "file_digest",  # hashlib: reads files
        "main",  # base64: a command
        "purge",  # re: empties a cache that all runs share
    }
)
"""Public names of allowed modules that a script does not get."""

ALLOWED_BUILTINS: Final = _names(
    "ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BufferError "
    "EOFError Ellipsis Exception ExceptionGroup False FloatingPointError GeneratorExit "
    "ImportError IndentationError IndexError KeyError KeyboardInterrupt LookupError MemoryError "
    "ModuleNotFoundError NameError None NotImplemented NotImplementedError OSError OverflowError "
    "RecursionError RuntimeError StopAsyncIteration StopIteration SyntaxError SystemError "
    "SystemExit TimeoutError True TypeError UnboundLocalError UnicodeDecodeError "
    "UnicodeEncodeError UnicodeError UnicodeTranslateError UserWarning ValueError Warning "
    "ZeroDivisionError __build_class__ __debug__ abs all any ascii bin bool bytearray bytes "
    "callable chr classmethod complex dict divmod enumerate filter float format frozenset hex "
    "int isinstance issubclass iter len list map max memoryview min next object oct ord pow "
    "property range repr reversed round set slice sorted staticmethod str sum super tuple zip"
)
"""Builtins that a script gets unchanged: all that reach nothing outside the run.

Exceptions are among them, because a script may raise and catch any of them.
"""

REPLACED_BUILTINS: Final = _names("__import__ delattr getattr hasattr print setattr type")
"""Builtins that a script gets in a restricted form (``restricted``, ``modules``)."""

ALLOWED_DUNDERS: Final = _names(
    "__abs__ __add__ __and__ __bool__ __bytes__ __call__ __ceil__ __class_getitem__ __contains__ "
    "__debug__ __delitem__ __divmod__ __doc__ __enter__ __eq__ __exit__ __float__ __floor__ "
    "__floordiv__ __format__ __ge__ __getitem__ __gt__ __hash__ __iadd__ __iand__ __ifloordiv__ "
    "__imod__ __imul__ __index__ __init__ __int__ __invert__ __ior__ __isub__ __iter__ "
    "__itruediv__ __ixor__ __le__ __len__ __lshift__ __lt__ __match_args__ __matmul__ "
    "__missing__ __mod__ __mul__ __name__ __ne__ __neg__ __next__ __or__ __pos__ __post_init__ "
    "__pow__ __radd__ __rand__ __repr__ __reversed__ __rfloordiv__ __rmod__ __rmul__ __ror__ "
    "__round__ __rpow__ __rshift__ __rsub__ __rtruediv__ __rxor__ __setitem__ __slots__ __str__ "
    "__sub__ __truediv__ __trunc__ __xor__"
)
"""Double-underscore names that a script may define and use."""

_REFUSED_ATTRIBUTES: Final = frozenset(
    {
        # frames and code lead from a script into its caller
        *("gi_frame", "gi_code", "gi_yieldfrom", "cr_frame", "cr_code", "cr_await", "cr_origin"),
        *("ag_frame", "ag_code", "ag_await", "tb_frame", "tb_next", "tb_lasti"),
        *("f_back", "f_builtins", "f_code", "f_generator", "f_globals", "f_locals", "f_trace"),
        # abstract base classes and dispatchers of the library outlive a run
        *("register", "_abc_registry_clear", "_abc_caches_clear", "_dump_registry"),
        # base classes of the classes that a script gets
        "mro",
        # the wall clock
        *("now", "today", "utcnow"),
    }
)

_HINTS: Final = {
    "now": "use ctx.clock.now_ms(): a guest's clock is event time",
    "today": "use ctx.clock.now_ms(): a guest's clock is event time",
    "utcnow": "use ctx.clock.now_ms(): a guest's clock is event time",
    "hash": "it differs between processes: use hashlib",
    "id": "it differs between runs",
    "open": "a script reads no files",
    "input": "a script has no terminal",
    "time": "use ctx.clock.now_ms(): a guest's clock is event time",
    "random": "use ctx.random: the same numbers when a run is repeated",
    "logging": "use ctx.log",
}


def is_refused_name(name: str) -> bool:
    """Return whether a script may not use this attribute.

    Returns:
        True for frames, the wall clock and registries, and for names that
        ``is_reserved_name`` refuses.
    """
    return name in _REFUSED_ATTRIBUTES or is_reserved_name(name)


def is_reserved_name(name: str) -> bool:
    """Return whether a script may not use this identifier anywhere, not even for a variable.

    Returns:
        True for double-underscore names outside ``ALLOWED_DUNDERS``, and for
        ``_sunder_`` names except an enumeration member's ``_name_`` and ``_value_``.
    """
    if not (name.startswith("_") and name.endswith("_")) or len(name) < 3:  # noqa: PLR2004 - _ and __ are plain names
        return False
    if name.startswith("__"):
        return name not in ALLOWED_DUNDERS
    return name not in {"_name_", "_value_"}


def hint(name: str) -> str:
    """Return the advice about a refused name, as the end of a message; may be empty."""
    return f" ({_HINTS[name]})" if name in _HINTS else ""
