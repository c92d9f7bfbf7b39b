"""Standard modules remember what they were given: nothing of a run may be in there.

Several of them keep their last arguments as keys of a cache. A text or a number
of a script's own class would stay there with all that it refers to, and its
``__eq__`` would meet the next run's. So caches get plain keys, or are closed.
"""

import struct
import sys
from collections.abc import Callable
from typing import Any, Final

_MARK: Final = "is_plain"


def plain_key(value: Any) -> Any:
    """Return a text, bytes or whole number as one of the builtin class.

    Args:
        value: Anything; what is neither is returned as it is.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bytes:
        return value
    if isinstance(value, str):
        return "".join((value,))  # noqa: FLY002 - an f-string asks the text for its format
    if isinstance(value, bytes):
        return b"".join((value,))
    return int.__add__(value, 0) if isinstance(value, int) else value


def close_caches() -> None:
    """Let the modules that this interpreter has imported keep nothing of a run."""
    modules = sys.modules
    if "re" in modules:
        _give_plain_keys(modules["re"], "_compile")
        _give_plain_keys(modules["re"], "_compile_template")
    if "_strptime" in modules:
        _give_plain_keys(modules["_strptime"], "_strptime")
    if "typing" in modules:
        caches: dict[Any, Any] = vars(modules["typing"]).get("_caches", {})
        # subscripts are for annotations: seldom, and not slow
        caches.update({function: function for function in caches})
    if "textwrap" in modules:
        wrapper: Any = modules["textwrap"].TextWrapper
        spaces = wrapper.unicode_whitespace_trans
        if isinstance(spaces, dict):  # a text is as good a table, and nobody can change it
            last = max(spaces)
            wrapper.unicode_whitespace_trans = "".join(
                chr(spaces.get(code, code)) for code in range(last + 1)
            )


def _give_plain_keys(module: Any, name: str) -> None:
    function = getattr(module, name)
    if not hasattr(function, _MARK):
        setattr(module, name, _with_plain_keys(function))


def _with_plain_keys(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Any, *others: Any) -> Any:
        return function(plain_key(first), *map(plain_key, others))

    setattr(call, _MARK, True)
    return call


def _with_plain_format(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(format: Any, /, *values: Any, **named: Any) -> Any:  # noqa: A002 - its name there
        return function(plain_key(format), *values, **named)

    return call


STRUCT_NAMES: Final = {
    name: _with_plain_format(getattr(struct, name))
    for name in ("calcsize", "iter_unpack", "pack", "pack_into", "unpack", "unpack_from")
}
"""``struct``'s functions, with formats that its cache may keep."""
