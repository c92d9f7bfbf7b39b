"""Modules of arrays that kernels are bound for: numpy, or one with its interface."""

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
    """A call, and the step that it is counted for."""

    run: Run
    step: Step


@dataclass(frozen=True, slots=True)
class Binding:
    """A step and the arrays that it is bound to."""

    library: "Library"
    step: Step
    inputs: Sequence[Array]
    output: Array
    narrow: bool
    """Whether the library does not compute with one of the dtypes."""


type Binder = Callable[[Binding], Run | None]


@dataclass(frozen=True, slots=True)
class Library:
    """A module of arrays, and what is its own."""

    xp: Any
    binders: Mapping[Operator, Binder]
    """Of operators that are no call of one function with ``out``."""
    is_narrow: Callable[[DType], bool]
    """Whether its functions do not compute with a dtype as the definition says."""
    filling: Callable[[Array, Any, DType], Run]
    """Makes a call that fills an output, whose elements are of a dtype."""
    fallback: Callable[[Step, Sequence[Array], Array], Run]
    """Makes a call of a step that has no kernel here."""


def strided(array: Array, shape: Sequence[int], view: View, xp: Any = np) -> Array:
    """Give a view of a row-major array; its bounds were validated when the program was planned."""
    item = array.dtype.itemsize
    # numpy cannot make views of dtypes that it does not know: of plain bytes as wide it can
    plain = array if not is_foreign(array.dtype) else array.view(f"u{item}")
    flat = plain.reshape(-1)
    # the step of an axis of one element may be any number, also one that numpy cannot take
    steps = [step * item if size > 1 else 0 for size, step in zip(shape, view.strides, strict=True)]
    result = xp.lib.stride_tricks.as_strided(flat[view.offset :], tuple(shape), tuple(steps))
    return result if plain is array else result.view(array.dtype)
