"""Modules of arrays for which kernels are bound: numpy, or a module with its interface."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Step
from walle_stream.engine.region import View
from walle_stream.engine.rules import is_foreign

type Run = Callable[[], object]


class Bound(NamedTuple):
    """A call, and the step for which its time counts."""

    run: Run
    step: Step


@dataclass(frozen=True, slots=True)
class Binding:
    """A step and the arrays to which it is bound."""

    library: "Library"
    step: Step
    inputs: Sequence[Array]
    output: Array
    narrow: bool
    """Whether the library cannot compute with one of the dtypes."""


type Binder = Callable[[Binding], Run | None]


@dataclass(frozen=True, slots=True)
class Library:
    """A module of arrays, and its own kernels."""

    xp: Any
    binders: Mapping[Operator, Binder]
    """Binders of operators that are not a single function with ``out``."""
    is_narrow: Callable[[DType], bool]
    """Whether its functions treat a dtype differently from the reference."""
    filling: Callable[[Array, Any, DType], Run]
    """Makes a call that fills an output with an element of a dtype."""
    fallback: Callable[[Step, Sequence[Array], Array], Run]
    """Makes a call of a step without a kernel."""


def strided(array: Array, shape: Sequence[int], view: View, xp: Any = np) -> Array:
    """Return a view of a row-major array; planning has validated its bounds."""
    item = array.dtype.itemsize
    # numpy cannot make strided views of foreign dtypes, but of unsigned integers of equal width
    plain = array if not is_foreign(array.dtype) else array.view(f"u{item}")
    flat = plain.reshape(-1)
    # an axis of one element may have any stride, even one that numpy refuses
    steps = [step * item if size > 1 else 0 for size, step in zip(shape, view.strides, strict=True)]
    result = xp.lib.stride_tricks.as_strided(flat[view.offset :], tuple(shape), tuple(steps))
    return result if plain is array else result.view(array.dtype)
