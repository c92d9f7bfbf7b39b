"""Tables that are known at lowering, and indices in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import INT64, TEXT, is_floating
from walle_stream.errors import DTypeError


def taken(builder: Builder, table: Array, indices: Tensor) -> Tensor:
    """Return the rows of a table ``(count, *row)`` at int64 indices: ``(*indices, *row)``.

    An index that is not below ``count`` fails at run time.
    """
    return take(builder, builder.constant(table), indices)


def indices_of(builder: Builder, x: Tensor, keys: Sequence[Any] | Array) -> Tensor:
    """Return the int64 index of each number or string among keys; their count if there is none.

    The last of equal keys counts, and a nan equals a nan.

    Raises:
        DTypeError: Strings are looked up among numbers, or numbers among strings.
    """
    listed = np.asarray(keys)
    if (x.dtype == TEXT) != (listed.dtype.kind in "OUS") and listed.size:
        raise DTypeError(f"{x.dtype.name} cannot be among keys of {listed.dtype.name}")
    missing = len(listed)
    if not missing:
        return builder.broadcast(builder.constant(0, INT64), x.shape)
    if x.dtype == TEXT:
        return _indices_of_strings(builder, x, [str(element) for element in listed])
    known = listed.astype(x.dtype)
    is_number = np.equal(known, known)
    result = _indices_of_numbers(builder, x, known, is_number)
    if is_floating(x.dtype) and not is_number.all():
        last = int(np.flatnonzero(~is_number)[-1])
        result = builder.select(builder.is_nan(x), last, result)
    return result


def _indices_of_strings(builder: Builder, x: Tensor, keys: list[str]) -> Tensor:
    # an index in the table of distinct keys, and from it the last index among all keys
    last = {key: number for number, key in enumerate(keys)}
    table = {key: number for number, key in enumerate(last)}
    result = builder.text("lookup", [x], x.shape, INT64, table=table)
    if len(table) == len(keys):
        return result
    return taken(builder, np.array([*last.values(), len(keys)], np.int64), result)


def _indices_of_numbers(builder: Builder, x: Tensor, keys: Array, is_number: Array) -> Tensor:
    numbers = np.flatnonzero(is_number)
    order = numbers[np.argsort(keys[numbers], kind="stable")]
    if not order.size:
        return builder.broadcast(builder.constant(len(keys), INT64), x.shape)
    ordered = keys[order]
    # the last of equal keys, which a stable sort also puts last
    is_last = np.append(ordered[1:] != ordered[:-1], np.True_)
    positions, ordered = order[is_last], ordered[is_last]
    rounds = (len(ordered) - 1).bit_length()
    width = (1 << rounds) - len(ordered)
    padded = np.append(ordered, np.repeat(ordered[-1:], width))
    flat = builder.reshape(x, (x.size,))
    low = builder.broadcast(builder.constant(0, INT64), flat.shape)
    for number in reversed(range(rounds)):
        probe = builder.add(low, 1 << number)
        is_below = builder.less_equal(taken(builder, padded, probe), flat)
        low = builder.select(is_below, probe, low)
    is_found = builder.equal(taken(builder, padded, low), flat)
    index = taken(
        builder, np.append(positions, np.repeat(positions[-1:], width)).astype(np.int64), low
    )
    return builder.reshape(builder.select(is_found, index, len(keys)), x.shape)
