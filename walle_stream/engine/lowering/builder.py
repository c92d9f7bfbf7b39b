"""Builds a program for rules: emits atomics and rasters, and folds constants.

Values are tensors of known shapes. If all inputs of a step are known, the builder computes its
elements at once. A shape that the model computes is thus known when a rule asks for it.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.backends.library import strided
from walle_stream.engine.derived import SHARED
from walle_stream.engine.limits import Limits, check_memory, work_of
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Step, Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of, validate_regions, whole
from walle_stream.engine.rules import TEXT, check_size, infer
from walle_stream.errors import EngineError, ShapeError

FOLD_MAX_BYTES: Final = 1 << 26
"""A constant larger than this, and than twice its inputs, is computed at run time."""


SPREAD_MAX: Final = 256
"""Number of elements up to which a broadcast constant needs no step of the program."""

type Compute = Callable[[Step, Sequence[Array]], Array]
type Operand = Tensor | float | bool | str


class ValueUnknown(Exception):  # noqa: N818  # a signal between lowering and the module, no error
    """A rule asked for the elements of a tensor that are known only after a run."""

    def __init__(self, tensor: Tensor) -> None:
        """Keep the tensor."""
        super().__init__(tensor)
        self.tensor = tensor


def _unary(operator: Operator) -> Callable[["Builder", Tensor], Tensor]:
    return lambda builder, x: builder.unary(operator, x)


def _binary(operator: Operator) -> Callable[["Builder", Operand, Operand], Tensor]:
    return lambda builder, x, y: builder.binary(operator, x, y)


class Builder:
    """Collects the steps of one program. Not thread-safe; each lowering has its own builder."""

    def __init__(self, compute: Compute, limits: Limits | None = None) -> None:
        """Begin an empty program; ``compute`` runs a step on known inputs, within the limits."""
        self._compute = compute
        self._limits = limits or Limits()
        self._folded_bytes = 0
        self._emitted = 0
        self.steps: list[Step] = []
        self.origin = ""
        self.work = 0
        """Elements that all steps so far compute, including the folded ones."""

    # values

    def constant(self, data: Any, dtype: DType | None = None, name: str = "") -> Tensor:
        """Make a known tensor of elements, which the caller must not change afterwards."""
        array = np.asarray(data, dtype)
        return Tensor(array.shape, array.dtype, array, name)

    def value(self, tensor: Tensor) -> Array:
        """Return the known elements of a tensor, which the caller must not change.

        Raises:
            ValueUnknown: The elements are known only after a run.
        """
        if tensor.data is None:
            raise ValueUnknown(tensor)
        return tensor.data

    # steps

    def emit(self, operator: Operator, *inputs: Tensor, **parameters: Any) -> Tensor:
        """Append a step, or compute it if all its inputs are known, and return its output.

        Raises:
            EngineError: The operator refuses the inputs, or a limit is exceeded.
        """
        shape, dtype = infer(operator, inputs, parameters)
        output = Tensor(shape, dtype)
        step = Step(operator, inputs, (output,), parameters, self.origin)
        self._charge(step)
        if self._is_folded(step):
            self._folded_bytes += output.nbytes if output.has_shape else 0
            check_memory(self._folded_bytes, self._limits)
            output = self.constant(self._compute(step, [self.value(tensor) for tensor in inputs]))
            if shape is not None and output.shape != shape:
                raise EngineError(f"{operator} made {output.shape}, not {shape}")
            return output
        self.steps.append(step)
        return output

    def _charge(self, step: Step) -> None:
        self._emitted += 1
        if self._emitted > self._limits.steps:
            raise EngineError(f"it needs more than {self._limits.steps} steps (Limits.steps)")
        self.work += work_of(step)
        if self.work > self._limits.work:
            raise EngineError(
                f"it computes more than {self._limits.work} elements in one run (Limits.work)"
            )

    def _is_folded(self, step: Step) -> bool:
        if step.operator is Operator.RANDOM or any(tensor.data is None for tensor in step.inputs):
            return False
        if not step.output.has_shape:
            return True
        read = sum(tensor.nbytes for tensor in step.inputs)
        return step.output.nbytes <= max(FOLD_MAX_BYTES, 2 * read)

    def text(
        self, name: str, inputs: Sequence[Tensor], shape: Shape | None, dtype: DType,
        **parameters: Any,
    ) -> Tensor:  # fmt: skip
        """Append an operation of ``backends.text``; ``shape`` is None if it depends on values."""
        return self.emit(Operator.TEXT, *inputs, name=name, shape=shape, dtype=dtype, **parameters)

    # moves: the raster

    def raster(
        self,
        inputs: Sequence[Tensor],
        shape: Sequence[int],
        regions: Sequence[Region],
        fill: Any = None,
        *,
        accumulate: bool = False,
    ) -> Tensor:
        """Move elements of inputs of one dtype by regions.

        Regions are disjoint unless they accumulate. Elements that no region writes are ``fill``, by
        default zero or the empty string. With ``accumulate`` regions add to it.
        """
        kept = tuple(region for region in regions if region.count)
        if fill is None and sum(region.count for region in kept) < prod(shape):
            fill = "" if inputs[0].dtype == TEXT else 0
        return self.emit(
            Operator.RASTER, *inputs, regions=kept, shape=tuple(shape), dtype=inputs[0].dtype,
            fill=fill, accumulate=accumulate,
        )  # fmt: skip

    def view(
        self, x: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0
    ) -> Tensor:
        """Read through one view, with strides in elements; returns ``x`` if nothing would move."""
        shape, view = tuple(shape), View(offset, tuple(strides))
        if x.data is not None and x.size and 0 not in shape:
            return self._known_view(x, shape, view)
        if shape == x.shape and view == View(0, strides_of(shape)):
            return x
        return self.raster([x], shape, [whole(shape, view)])

    def _known_view(self, x: Tensor, shape: Shape, view: View) -> Tensor:
        # a broadcast constant takes no memory
        region = whole(shape, view)
        validate_regions([region], [x.shape], shape)
        data = strided(_row_major(self.value(x)), shape, view)
        data.flags.writeable = False
        spread = self.constant(data)
        if spread.size > max(SPREAD_MAX, x.size):
            # the step shows passes the broadcast; rules still find the elements
            self.steps.append(Step.raster(x, spread, region, self.origin))
        return spread

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the same elements, in the same order, with another shape.

        Raises:
            ShapeError: The shape has another number of elements.
        """
        shape = check_size(tuple(shape))
        if shape == x.shape:
            return x
        if x.size != prod(shape):
            raise ShapeError(f"shape {list(x.shape)} cannot become {list(shape)}")
        if x.data is not None:
            return self.constant(_row_major(x.data).reshape(shape))
        flat = Region((x.size,), View(0, (1,)), View(0, (1,)))
        return self.raster([x], shape, [flat])

    def broadcast(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Repeat axes of size 1, and put new axes in front.

        Raises:
            ShapeError: The shape cannot be broadcast.
        """
        shape = tuple(shape)
        if x.shape == shape:
            return x
        lead = len(shape) - x.rank
        if lead < 0 or any(
            mine not in {1, wanted} for mine, wanted in zip(x.shape, shape[lead:], strict=True)
        ):
            raise ShapeError(f"shape {list(x.shape)} cannot be broadcast to {list(shape)}")
        own = strides_of(x.shape)
        strides = [0 if mine == 1 else step for mine, step in zip(x.shape, own, strict=True)]
        return self.view(x, shape, [0] * lead + strides)

    # elementwise

    def as_tensor(self, x: Operand, like: Tensor) -> Tensor:
        """Convert a plain number to a scalar with the dtype of ``like``; a tensor stays."""
        if isinstance(x, Tensor):
            return x
        with np.errstate(all="ignore"):
            return self.constant(np.array(x).astype(like.dtype))

    def unary(self, operator: Operator, x: Tensor, **parameters: Any) -> Tensor:
        """Apply one of ``UNARY`` to each element."""
        return self.emit(operator, x, **parameters)

    def binary(self, operator: Operator, x: Operand, y: Operand) -> Tensor:
        """Apply one of ``BINARY`` to pairs of elements; shapes are broadcast.

        One operand may be a plain number, which takes the dtype of the other.

        Raises:
            EngineError: Both operands are plain numbers.
            ShapeError: The shapes cannot be broadcast to a common one.
        """
        if isinstance(x, Tensor):
            left, right = x, self.as_tensor(y, x)
        elif isinstance(y, Tensor):
            left, right = self.as_tensor(x, y), y
        else:
            raise EngineError(f"{operator} of two plain numbers")
        shape = common_shape(left.shape, right.shape)
        return self.emit(operator, self.broadcast(left, shape), self.broadcast(right, shape))

    def select(self, condition: Tensor, x: Operand, y: Operand) -> Tensor:
        """Choose ``x`` where the condition is true, else ``y``, broadcast; one must be a tensor."""
        like = x if isinstance(x, Tensor) else y
        assert isinstance(like, Tensor)  # noqa: S101
        left, right = self.as_tensor(x, like), self.as_tensor(y, like)
        shape = common_shape(condition.shape, left.shape, right.shape)
        return self.emit(
            Operator.SELECT,
            *(self.broadcast(operand, shape) for operand in (condition, left, right)),
        )

    def cast(self, x: Tensor, dtype: Any, **parameters: Any) -> Tensor:
        """Convert each element, with parameters of ``CAST``; returns ``x`` if nothing changes."""
        wanted = np.dtype(dtype)
        return x if x.dtype == wanted else self.emit(Operator.CAST, x, dtype=wanted, **parameters)

    abs, neg, sign = map(_unary, (Operator.ABS, Operator.NEG, Operator.SIGN))
    floor, ceil, round = map(_unary, (Operator.FLOOR, Operator.CEIL, Operator.ROUND))
    sqrt, exp, log = map(_unary, (Operator.SQRT, Operator.EXP, Operator.LOG))
    tanh, erf, is_nan = map(_unary, (Operator.TANH, Operator.ERF, Operator.IS_NAN))
    logical_not = _unary(Operator.NOT)

    add, sub, mul = map(_binary, (Operator.ADD, Operator.SUB, Operator.MUL))
    div, mod, pow = map(_binary, (Operator.DIV, Operator.MOD, Operator.POW))
    maximum, minimum = map(_binary, (Operator.MAXIMUM, Operator.MINIMUM))
    equal, less, less_equal = map(_binary, (Operator.EQUAL, Operator.LESS, Operator.LESS_EQUAL))
    logical_and, logical_or = map(_binary, (Operator.AND, Operator.OR))

    def clip(self, x: Tensor, low: Operand, high: Operand) -> Tensor:
        """Limit elements to bounds."""
        return self.minimum(self.maximum(x, low), high)

    # reductions and products

    def reduce(
        self, operator: Operator, x: Tensor, axes: Sequence[int], *, keep: bool = True
    ) -> Tensor:
        """Reduce over non-negative axes by one of ``REDUCTION``; without axes the tensor stays."""
        result = self.emit(operator, x, axes=tuple(sorted(axes))) if axes else x
        if keep:
            return result
        return self.reshape(
            result, [size for axis, size in enumerate(x.shape) if axis not in set(axes)]
        )

    def max(self, x: Tensor, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """Return the maximum over axes; see ``reduce``."""
        return self.reduce(Operator.REDUCE_MAX, x, axes, keep=keep)

    def sum(self, x: Tensor, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """Return the sum over axes; see ``reduce``."""
        return self.reduce(Operator.SUM, x, axes, keep=keep)

    def mean(self, x: Tensor, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """Return the mean over axes; see ``reduce``."""
        count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
        return self.div(self.sum(x, axes, keep=keep), count)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply ``(..., M, K)`` by ``(..., K, N)``; the leading axes are broadcast."""
        lead = common_shape(x.shape[:-2], y.shape[:-2])
        return self.emit(
            Operator.MATMUL,
            self.broadcast(x, (*lead, *x.shape[-2:])),
            self.broadcast(y, (*lead, *y.shape[-2:])),
        )


def common_shape(*shapes: Shape) -> Shape:
    """Return the shape to which all shapes are broadcast, by numpy's rule.

    Raises:
        ShapeError: There is no such shape.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise ShapeError(f"shapes {listed} do not fit each other") from error


def _row_major(array: Array) -> Array:
    if array.flags.c_contiguous or not array.size:
        return array
    return SHARED.of("row-major", [array], lambda: np.ascontiguousarray(array))
