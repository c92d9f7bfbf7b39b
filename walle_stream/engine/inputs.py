"""Checks of a caller's inputs against the model's declaration."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from walle_stream.engine.graph import (
    Graph,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import BOOL, TEXT, check_size, is_floating, is_integer, native
from walle_stream.engine.values import Data, Maps
from walle_stream.errors import DTypeError, EngineError, ShapeError, WalleError

_NAMES_SHOWN = 20

TEXTS_MAX: Final = 1 << 26
"""Largest number of elements of a tensor of text; each element is checked."""


def checked_inputs(graph: Graph, values: Mapping[str, Any]) -> dict[str, Data]:
    """Return a caller's values as arrays of the declared dtypes and shapes.

    Numbers and lists of numbers take the declared dtype, and strings the dtype ``object``. A list
    of tensors is a sequence, a dict of numbers or strings is a map, and None is an empty optional
    value.

    Raises:
        EngineError: A name is unknown, or an input is missing.
        DTypeError: The dtype of an input differs from the model's declaration.
        ShapeError: The shape of an input differs, or the name of a size stands for two numbers.
    """
    if not isinstance(values, Mapping):
        raise EngineError(
            f"inputs must be given by name, as {{'name': array}}, not as {_shown(values)}:"
            f" the model has {_names(graph)}"
        )
    unknown = [name for name in values if name not in graph.inputs]
    if unknown:
        raise EngineError(f"there is no input {unknown[0]!r}: the model has {_names(graph)}")
    sizes: dict[str, tuple[int, str]] = {}
    results: dict[str, Data] = {}
    for name, kind in graph.inputs.items():
        if name in values:
            try:
                results[name] = _checked(values[name], kind, name, sizes)
            except MemoryError as error:
                raise EngineError(f"input {name!r}: there is not enough memory") from error
            except WalleError as error:
                raise type(error)(f"input {name!r}: {error.message}") from error
        elif isinstance(kind, OptionalType):
            results[name] = None
        elif name not in graph.constants:
            raise EngineError(f"input {name!r} is missing: the model has {_names(graph)}")
    return results


def _names(graph: Graph) -> str:
    names = [repr(name) for name in graph.inputs]
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) or "no input"
    return f"{shown} and {more} more" if more > 0 else shown


def _checked(value: Any, kind: ValueType, name: str, sizes: dict[str, tuple[int, str]]) -> Data:
    match kind:
        case OptionalType(element):
            return None if value is None else _checked(value, element, name, sizes)
        case SequenceType(element):
            if not isinstance(value, (list, tuple)):
                raise EngineError(f"a list of tensors is expected, not {_shown(value)}")
            # a named size may differ between the tensors of a sequence
            return [_checked(item, element, name, {}) for item in value]
        case TensorType(dtype, shape):
            if value is None:
                raise EngineError("a tensor is expected, not None")
            array = _array(value, dtype)
            _check_shape(array.shape, shape, name, sizes)
            return array
        case MapType(key, TensorType(dtype)):
            if not isinstance(value, Mapping):
                raise EngineError(f"a dict is expected, not {_shown(value)}")
            return Maps(_column([*value], key), _column([*value.values()], dtype))
        case MapType():
            raise EngineError("a map to other values than numbers and strings cannot be given")
    return _untyped(value)


def _column(elements: list[Any], dtype: DType) -> Array:
    array = _array(elements, dtype) if elements else np.empty(0, dtype)
    _check_shape(array.shape, (len(elements),), "", {})
    return array


def _untyped(value: Any) -> Data:
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and any(
        isinstance(element, np.ndarray) for element in value
    ):
        return [_untyped(element) for element in value]
    return _array(value, None)


def _array(value: Any, dtype: DType | None) -> Array:
    is_plain = not hasattr(value, "dtype")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, MemoryError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise EngineError(f"{_shown(value)} cannot be a tensor: {reason}") from error
    check_size(array.shape)
    array = native(array)
    if array.dtype.kind in "SUTO":
        if dtype is not None and dtype != TEXT:
            raise DTypeError(f"its dtype is {array.dtype.name}, not {dtype.name}: cast it")
        array = _texts(array)
    if dtype is not None and array.dtype != dtype:
        if not is_plain or not _fits(array, dtype):
            raise DTypeError(f"its dtype is {array.dtype.name}, not {dtype.name}: cast it")
        with np.errstate(all="ignore"):
            array = array.astype(dtype)
    elif array.dtype.kind in "mM" or array.dtype.type is np.void:
        raise DTypeError(f"tensors cannot have the dtype {array.dtype.name}")
    return array


def _fits(array: Array, dtype: DType) -> bool:
    # for a Python number or a list, whose dtype the caller has not chosen
    if not array.size:
        return dtype != TEXT
    if is_floating(dtype):
        return array.dtype.kind in "iuf"
    if not is_integer(dtype) or array.dtype == BOOL or array.dtype.kind not in "iu":
        return False
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
        # a cast there and back loses only a sign
        is_same = np.array_equal(result.astype(array.dtype), array)
        return bool(is_same) and np.array_equal(result < 0, array < 0)


def _texts(array: Array) -> Array:
    if array.size > TEXTS_MAX:
        raise ShapeError(f"a tensor of {array.size} texts has more than {TEXTS_MAX}")
    flat = []
    for element in array.reshape(-1).tolist():
        text = element
        if isinstance(element, bytes):
            try:
                text = element.decode()
            except UnicodeDecodeError as error:
                raise EngineError(f"text that is not UTF-8: {error}") from error
        if not isinstance(text, str):
            raise DTypeError(f"tensors of objects hold only text, not {_shown(element)}")
        flat.append(text)
    return np.array(flat, TEXT).reshape(array.shape)


def _check_shape(
    shape: tuple[int, ...],
    declared: tuple[int | str | None, ...] | None,
    name: str,
    sizes: dict[str, tuple[int, str]],
) -> None:
    if declared is None:
        return
    wanted = "[" + ", ".join("?" if n is None else str(n) for n in declared) + "]"
    if len(shape) != len(declared):
        raise ShapeError(f"its shape {list(shape)} has {len(shape)} axes; {wanted} is declared")
    for mine, theirs in zip(shape, declared, strict=True):
        if isinstance(theirs, int) and mine != theirs:
            raise ShapeError(f"its shape is {list(shape)}, not {wanted}")
        if isinstance(theirs, str):
            size, where = sizes.setdefault(theirs, (mine, name))
            if size != mine:
                raise ShapeError(
                    f"its shape is {list(shape)}, not {wanted}: {theirs} is {size} in {where!r}"
                )


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}"
