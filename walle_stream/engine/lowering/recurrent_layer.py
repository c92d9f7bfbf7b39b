"""Common parts of RNN, GRU and LSTM: checked inputs, and activation functions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.activations import ACTIVATIONS
from walle_stream.engine.lowering.addressing import reversed_lengths
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.quantization import rounded_to_bytes
from walle_stream.engine.lowering.registry import Call
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import INT64, is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError


class Function(NamedTuple):
    """One of ``ACTIVATIONS`` with its parameters."""

    name: str
    parameters: tuple[float, ...]


STEPS_MAX: Final = 1 << 16

_BACKWARD: Final = {
    "forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True),
}  # fmt: skip
"""Backward flags by the attribute ``direction``; the default of the first GRU lacks a letter."""

_PEEPHOLES: Final = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """Inputs of a recurrent operator, or of some of its directions, with time as first axis."""

    builder: Builder
    x: Tensor
    """(time, batch, features)"""
    weights: Tensor
    """(direction, gates, features)"""
    recurrence: Tensor
    """(direction, gates, hidden)"""
    bias: Tensor | None
    """(direction, twice the gates)"""
    lengths: Tensor | None
    initial: tuple[Tensor, ...]
    """(direction, batch, hidden) each"""
    peepholes: Tensor | None
    backward: tuple[bool, ...]
    """One flag per direction."""
    clip: float | None
    dtype: DType
    """Dtype of the outputs; computations use the dtype of ``x``."""
    is_batch_first: bool
    scales: tuple[Tensor, ...] = ()
    """(direction, 1, gates or 1) for quantised weights, then for a quantised recurrence."""

    @property
    def steps(self) -> int:
        """Number of time steps."""
        return self.x.shape[0]

    @property
    def batch(self) -> int:
        """Number of rows."""
        return self.x.shape[1]

    @property
    def hidden(self) -> int:
        """Number of elements of a state."""
        return self.recurrence.shape[2]

    @property
    def directions(self) -> int:
        """Number of directions, one or two."""
        return len(self.backward)

    def group(self, first: int, last: int) -> "Layer":
        """Return the layer with only the directions ``first .. last - 1``."""
        if (first, last) == (0, self.directions):
            return self

        def kept(tensor: Tensor) -> Tensor:
            return moves.slice_axis(self.builder, tensor, 0, first, last)

        return replace(
            self,
            weights=kept(self.weights),
            recurrence=kept(self.recurrence),
            bias=None if self.bias is None else kept(self.bias),
            peepholes=None if self.peepholes is None else kept(self.peepholes),
            initial=tuple(kept(operand) for operand in self.initial),
            scales=tuple(kept(scale) for scale in self.scales),
            backward=self.backward[first:last],
        )

    def inputs(self) -> Tensor:
        """Return the inputs in each direction's order: ``(direction, time * batch, features)``."""
        lines = [self.reversed_in_time(self.x) if back else self.x for back in self.backward]
        shape = (1, self.steps * self.batch, self.x.shape[2])
        return moves.concat(self.builder, [self.builder.reshape(line, shape) for line in lines], 0)

    def reversed_in_time(self, x: Tensor) -> Tensor:
        """Reverse the valid steps of each row; time is the first axis, rows the last but one."""
        if self.lengths is None:
            return moves.flip(self.builder, x, (0,))
        return reversed_lengths(self.builder, x, self.lengths, time=0, batch=x.rank - 2)

    def active(self) -> Tensor | None:
        """Return whether each row is active at each step, (time, batch); None if all are."""
        if self.lengths is None:
            return None
        ends = self.builder.cast(self.lengths, INT64)
        return self.builder.less(self.builder.constant(np.arange(self.steps).reshape(-1, 1)), ends)

    def product(self, x: Tensor, weights: Tensor, number: int) -> Tensor:
        """Multiply rows, ``(direction, rows, elements)``, by ``transposed`` weights.

        ``number`` is 0 for ``weights``, 1 for ``recurrence``. If these are quantised, the rows are
        rounded to 8 bits in a range of their own.
        """
        builder = self.builder
        if not self.scales:
            return builder.matmul(x, weights)
        steps, scale = rounded_to_bytes(builder, x, (1, 2))
        return builder.mul(builder.matmul(steps, weights), builder.mul(scale, self.scales[number]))

    def transposed(self, weights: Tensor) -> Tensor:
        """Return weights as right operands of a product."""
        return moves.transpose(self.builder, weights, (0, 2, 1))

    def spread(self, rows: Tensor) -> Tensor:
        """Add an axis of rows to (direction, elements)."""
        return moves.expand_axis(self.builder, rows, 1)

    def gates(self, x: Tensor, first: int, last: int) -> Tensor:
        """Keep gates ``first .. last - 1`` of the last axis."""
        size = self.hidden
        return moves.slice_axis(self.builder, x, x.rank - 1, first * size, last * size)

    def as_output(self, x: Tensor) -> Tensor:
        """Cast ``(..., direction, batch, hidden)`` to the output dtype and layout of the node."""
        result = self.builder.cast(x, self.dtype)
        if not self.is_batch_first:
            return result
        order = (1, 0, 2) if x.rank == 3 else (2, 0, 1, 3)  # noqa: PLR2004  # without time
        return moves.transpose(self.builder, result, order)


def layer_of(call: Call, *, gates: int, states: int) -> Layer:
    """Check the inputs of a recurrent operator.

    Raises:
        ShapeError: Shapes do not fit each other.
        DTypeError: The dtype of an input differs from that of the first.
        LoweringError: An attribute has an unknown value.
    """
    x, recurrence, builder = call.tensor(0), call.tensor(2), call.builder
    direction, layout = call.text("direction", "forward"), call.number("layout", 0)
    if direction not in _BACKWARD or layout not in {0, 1}:
        raise LoweringError(f"direction {direction!r} or layout {layout} is unknown")
    require_floating(x)
    if x.rank != 3 or recurrence.rank != 3:  # noqa: PLR2004  # three axes, as the operators require
        raise ShapeError(f"inputs of shapes {list(x.shape)} and {list(recurrence.shape)}")
    hidden, count = recurrence.shape[2], len(_BACKWARD[direction])
    if call.number("hidden_size", hidden) != hidden:
        raise ShapeError(f"{hidden} hidden elements, not {call.number('hidden_size')}")
    steps, batch = x.shape[1::-1] if layout else x.shape[:2]
    if steps > STEPS_MAX:
        raise ShapeError(f"{steps} time steps are more than {STEPS_MAX}: cut the sequence")
    lengths = call.optional(4)
    if lengths is not None and (lengths.shape != (batch,) or not is_integer(lengths.dtype)):
        raise ShapeError(f"lengths {lengths} for {batch} rows")
    wide_x = _wide(call, 0, x.shape)
    state = (count, batch, hidden)
    return Layer(
        builder,
        moves.transpose(builder, wide_x, (1, 0, 2)) if layout else wide_x,
        _wide(call, 1, (count, gates * hidden, x.shape[2])),
        _wide(call, 2, (count, gates * hidden, hidden)),
        _wide(call, 3, (count, 2 * gates * hidden)) if call.has(3) else None,
        lengths,
        tuple(_initial(call, number, state, wide_x.dtype) for number in range(5, 5 + states)),
        _wide(call, 7, (count, _PEEPHOLES * hidden)) if states > 1 and call.has(7) else None,
        _BACKWARD[direction],
        None if call.attribute("clip") is None else call.real("clip"),
        x.dtype,
        bool(layout),
    )


def _wide(call: Call, number: int, shape: Shape) -> Tensor:
    # an input, which must have the first one's dtype, cast to the dtype of computations
    x, dtype = call.tensor(number), call.tensor(0).dtype
    if x.dtype != dtype:
        raise DTypeError(f"input {number} is of {x.dtype.name}, not {dtype.name}")
    if x.shape != shape:
        raise ShapeError(f"input {number} has shape {list(x.shape)}, not {list(shape)}")
    return widened(call.builder, x)


def _initial(call: Call, number: int, shape: Shape, dtype: DType) -> Tensor:
    if not call.has(number):
        return call.builder.constant(np.zeros(shape, dtype))
    if not call.number("layout", 0):
        return _wide(call, number, shape)
    # the states are also batch-first
    result = _wide(call, number, (shape[1], shape[0], shape[2]))
    return moves.transpose(call.builder, result, (1, 0, 2))


def functions_of(call: Call, defaults: Sequence[str], directions: int) -> list[list[Function]]:
    """Return the activation functions of each direction, as many as ``defaults``.

    Raises:
        LoweringError: There are too few functions, or one is unknown.
    """
    named = call.attribute("activations")
    names = (*defaults,) * directions if named is None else named
    if not isinstance(names, tuple) or len(names) < len(defaults) * directions:
        raise LoweringError(
            f"attribute 'activations' is {names!r}, not {len(defaults) * directions} names"
        )
    canonical = {key.lower(): key for key in ACTIVATIONS}
    alphas, betas = (list(call.reals(f"activation_{key}")) for key in ("alpha", "beta"))
    results: list[Function] = []
    for key in names[: len(defaults) * directions]:
        text = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
        name = canonical.get(text.lower())
        if name is None:
            raise LoweringError(f"there is no activation {text!r}, only {', '.join(ACTIVATIONS)}")
        pairs = zip(ACTIVATIONS[name].defaults, (alphas, betas), strict=False)
        results.append(
            Function(name, tuple(own.pop(0) if own else default for default, own in pairs))
        )
    size = len(defaults)
    return [results[number * size : (number + 1) * size] for number in range(directions)]


def activated(layer: Layer, function: Function, x: Tensor) -> Tensor:
    """Apply the layer's clip, then one of ``functions_of``."""
    builder = layer.builder
    if layer.clip is not None:
        x = builder.clip(x, -layer.clip, layer.clip)
    return ACTIVATIONS[function.name].function(builder, x, *function.parameters)
