"""Conversions and checks that the generated row function calls.

Every function either returns a plain value, or raises one of ``ROW_ERRORS`` with
a reason for people, and the row becomes a dead letter. Every later stage can store
the results: integers of 64 bits and finite floats.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from walle_stream.types import TIME_MAX_MS

INT_MAX: Final = 2**63 - 1
"""Largest integer in an event; the smallest is its negative."""

BIG: Final = "the number has more than 64 bits"
"""Reason for refusing an integer."""

EVENTS_PER_ROW_MAX: Final = 10_000
"""Largest number of values for which ``each`` may repeat an event."""

ROW_ERRORS: Final = (ArithmeticError, LookupError, TypeError, ValueError, RecursionError)
"""Errors that an expression may raise on a row."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TEXT_MAX: Final = 2**20
_DEPTH_MAX: Final = 50
_SHOWN: Final = 60
_BOOLS: Final = {"1": True, "true": True, "0": False, "false": False}


def _show(value: object) -> str:
    return repr(value[:_SHOWN] if isinstance(value, str) else value)[: _SHOWN + 20]


def _bad(reason: str) -> NoReturn:
    raise ValueError(reason)


def _to_float(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else _bad(f"{_show(value)} is not a finite number")


def _to_bool(text: str) -> bool:
    value = _BOOLS.get(text.strip().lower())
    return _bad(f"{_show(text)} is not a bool (1, 0, true, false)") if value is None else value


def _to_text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    return _bad(f"{_show(value)} is not text")


def _optional_text(value: Any) -> str:
    return "" if value is None else _to_text(value)


def _to_list(value: Any) -> list[Any]:
    if value is None:
        return []  # a row without the list repeats nothing
    return value if type(value) is list else _bad(f"{_show(value)} is not a list")


def _short(value: list[Any]) -> list[Any]:
    if len(value) > EVENTS_PER_ROW_MAX:
        return _bad(f"it has {len(value)} values, at most {EVENTS_PER_ROW_MAX} are allowed")
    return value


def _missing(name: str) -> NoReturn:
    raise LookupError(f"the row has no {name!r}")


def _plain(value: Any, depth: int = 0) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if -INT_MAX <= value <= INT_MAX else _bad(BIG)
    if kind is float:
        return value if math.isfinite(value) else _bad("it is not a finite number")
    if depth > _DEPTH_MAX:
        _bad(f"it is nested more than {_DEPTH_MAX} deep")
    # a copy, because events of one row must not share objects that a script could change
    if kind is dict:
        return {name: _plain(part, depth + 1) for name, part in value.items()}
    return [_plain(part, depth + 1) for part in value]


def _scalar(value: Any) -> Any:
    if isinstance(value, list | dict):
        _bad("a list or an object cannot be part of the identity")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list) and len(value) > _TEXT_MAX:
        _bad(f"it is longer than {_TEXT_MAX}")
    return value


def _bad_time(value: Any) -> NoReturn:
    if value is None:
        _bad("the row has no time")
    if type(value) is not int:
        _bad(f"{_show(value)} is not an integer of milliseconds")
    _bad(f"{value} is outside 0 .. {TIME_MAX_MS} milliseconds")


def _expect_numbers(sign: str, what: str, left: Any, right: Any) -> None:
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        _bad(f"{_show(left)} {sign} {_show(right)}: only numbers {what}")


def _multiply(left: Any, right: Any) -> Any:
    _expect_numbers("*", "can be multiplied", left, right)
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    _expect_numbers("%", "have a remainder", left, right)
    return left % right


def _timestamp(value: Any) -> int:
    """Parse an ISO 8601 date and time; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(_to_text(value).strip())
    except ValueError as error:
        _bad(f"{_show(value)} is no ISO 8601 date and time ({error})")
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH) // _MILLISECOND


def _part(value: Any, name: str | int, default: Any = None) -> Any:
    """Return a part of an object or a list, or the default if it is missing."""
    if type(value) is dict:
        field = value.get(name)
    elif type(value) is list and type(name) is int and -len(value) <= name < len(value):
        field = value[name]
    else:
        field = None
    return default if field is None else field


def _chosen(*pairs: tuple[str, Any]) -> list[str]:
    return [name for name, is_set in pairs if is_set]


RUNTIME: Final[Mapping[str, Any]] = {
    "int": int,
    "float": _to_float,
    "bool": _to_bool,
    "str": str,
    "len": len,
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "lower": str.lower,
    "upper": str.upper,
    "strip": str.strip,
    "split": str.split,
    "flags": _chosen,
    "timestamp": _timestamp,
    "part": _part,
    "type": type,
    "to_text": _to_text,
    "optional_text": _optional_text,
    "to_list": _to_list,
    "short": _short,
    "missing": _missing,
    "plain": _plain,
    "scalar": _scalar,
    "bounded": _bounded,
    "enumerate": enumerate,
    "bad": _bad,
    "bad_time": _bad_time,
    "multiply": _multiply,
    "modulo": _modulo,
    "ROW_ERRORS": ROW_ERRORS,
}
"""All global names of a generated function."""
