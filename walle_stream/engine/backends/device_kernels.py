"""Kernels for arrays on a device (cupy), where cupy differs from numpy or from the reference.

An operator that has no kernel here, and is not a function with ``out``, runs on the host, with
copies. The device stores elements of dtypes that it lacks (``ml_dtypes``) as unsigned integers of
the same width. It can move and select them, but the host computes with them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from walle_stream.engine.backends.bound import bind_float, bind_matmul, bind_raster
from walle_stream.engine.backends.library import Binder, Binding, Library, Run
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Step
from walle_stream.engine.rules import is_foreign
from walle_stream.errors import EngineError


@dataclass(frozen=True, slots=True)
class Device:
    """The parts of cupy that the backend needs."""

    xp: Any
    erf: Any
    """``cupyx.scipy.special.erf``, for float32 and float64."""

    def upload(self, array: Array) -> Any:
        """Copy an array of any dtype except text to the device, row-major; see ``stored``."""
        plain = np.ascontiguousarray(array).reshape(array.shape)
        return self.xp.asarray(plain.view(stored(array.dtype)))

    def download(self, array: Any, dtype: DType) -> Array:
        """Copy to an array on the host, which the caller owns; waits for pending work."""
        result: Array = self.xp.asnumpy(array)
        return result if result.dtype == dtype else result.view(dtype)


def stored(dtype: DType) -> DType:
    """Return the dtype of elements on the device: their own, or an unsigned one of equal width."""
    known = not is_foreign(dtype) and dtype.kind in "biufc"
    return dtype if known else np.dtype(f"u{dtype.itemsize}")


def is_narrow(dtype: DType) -> bool:
    """Whether only the host computes with a dtype: those of ``ml_dtypes``, and complex numbers."""
    return bool(is_foreign(dtype) or dtype.kind not in "biuf")


class IndexChecks:
    """Range checks of indices on the device, whose results are read once, at the end of a run.

    Reading each result would wait for the device. Until the end an index out of range wraps
    around, as usual in cupy, and reads another element.
    """

    def __init__(self, device: Device, steps: Sequence[Step]) -> None:
        """Allocate the results on the device."""
        self._device = device
        count = sum(step.operator in {Operator.TAKE, Operator.PUT} for step in steps)
        self._wrong = device.xp.zeros(count, np.dtype(np.bool_)) if count else None
        self._bound: list[tuple[Step, int]] = []

    def bind(self, step: Step, indices: Any, size: int) -> Run:
        """Return a call that checks a step's indices into an axis of ``size`` on the device."""
        xp, number = self._device.xp, len(self._bound)
        assert self._wrong is not None  # noqa: S101
        self._bound.append((step, size))
        wrong = self._wrong[number : number + 1].reshape(())

        def check() -> None:
            low, high = xp.less(indices, 0), xp.greater_equal(indices, size)
            xp.any(xp.logical_or(low, high), out=wrong)

        return check

    def start(self) -> None:
        """Clear the results of the previous run."""
        if self._wrong is not None:
            self._wrong.fill(False)  # noqa: FBT003  # numpy's own signature

    def verify(self) -> None:
        """Read the results; waits for the device if there are any.

        Raises:
            EngineError: An index was out of range.
        """
        if not self._bound:
            return
        result = self._device.download(self._wrong, np.dtype(np.bool_))
        for (step, size), wrong in zip(self._bound, result, strict=False):
            if wrong:
                raise EngineError(
                    f"node {step.origin!r}: {step.operator}: an index is not in 0 .. {size - 1}"
                )


def library_of(device: Device, checks: IndexChecks) -> Library:
    """Make the ``Library`` of a device; ``checks`` belong to the program that is bound."""
    xp = device.xp

    def filling(output: Array, fill: Any, dtype: DType) -> Run:
        # an array instead of a scalar, so that no dtype is converted
        element = device.upload(np.array(fill, dtype))
        return lambda: xp.copyto(output, element)

    def fallback(step: Step, inputs: Sequence[Array], output: Array) -> Run:
        def run() -> None:
            arrays = [
                device.download(array, tensor.dtype)
                for array, tensor in zip(inputs, step.inputs, strict=True)
            ]
            xp.copyto(output, device.upload(compute(step, arrays)))

        return run

    binders = dict(_BINDERS)
    binders[Operator.ERF] = partial(_erf, device.erf)
    binders[Operator.TAKE] = partial(_take, checks)
    binders[Operator.PUT] = partial(_put, checks)
    return Library(xp, binders, is_narrow, filling, fallback)


def _composed(function: Callable[..., Any], kinds: str, binding: Binding) -> Run | None:
    """Bind a function of a module and arrays that returns a new array."""
    if binding.narrow or binding.step.inputs[0].dtype.kind not in kinds:
        return None
    xp, inputs, output = binding.library.xp, tuple(binding.inputs), binding.output
    return lambda: xp.copyto(output, function(xp, *inputs))


def _sign(xp: Any, x: Any) -> Any:
    # cupy compares with zero, so the sign of a nan would be 0
    return xp.where(xp.isnan(x), x, xp.sign(x))


def _mod(xp: Any, x: Any, y: Any) -> Any:
    # cupy multiplies the quotient back, which is wrong for infinities and large numbers
    rest = xp.fmod(x, y)
    crossed = xp.not_equal(xp.less(rest, 0), xp.less(y, 0))
    moved = xp.where(crossed, xp.add(rest, y), rest)
    return xp.where(xp.equal(rest, 0), xp.copysign(rest, y), moved)


def _whole_fmod(xp: Any, x: Any, y: Any) -> Any:
    # cupy converts to float64
    rest = xp.remainder(x, y)
    return xp.where(_is_away(xp, rest, x, y), xp.subtract(rest, y), rest)


def _whole_divide(xp: Any, x: Any, y: Any) -> Any:
    away = _is_away(xp, xp.remainder(x, y), x, y)
    return xp.add(xp.floor_divide(x, y), away.astype(x.dtype))


def _is_away(xp: Any, rest: Any, x: Any, y: Any) -> Any:
    crossed = xp.not_equal(xp.less(x, 0), xp.less(y, 0))
    return xp.logical_and(xp.not_equal(rest, 0), crossed)


def _shift_left(xp: Any, x: Any, y: Any) -> Any:
    # C leaves shifts by the width of the dtype or more undefined
    bits = 8 * x.dtype.itemsize
    near = xp.less(y.view(f"u{x.dtype.itemsize}"), bits).astype(x.dtype)
    return xp.multiply(xp.left_shift(x, xp.multiply(y, near)), near)


def _shift_right(xp: Any, x: Any, y: Any) -> Any:
    bits = 8 * x.dtype.itemsize
    count = y.view(f"u{x.dtype.itemsize}")
    if x.dtype.kind == "u":
        near = xp.less(count, bits).astype(x.dtype)
        return xp.multiply(xp.right_shift(x, xp.multiply(y, near)), near)
    last = xp.where(xp.less(count, bits), y, xp.full_like(y, bits - 1))
    return xp.right_shift(x, last)


def _raster(binding: Binding) -> Run | None:
    if binding.narrow and binding.step.parameters.get("accumulate"):
        return None
    return bind_raster(binding)


def _select(binding: Binding) -> Run | None:
    xp, (condition, x, y), output = binding.library.xp, binding.inputs, binding.output
    return lambda: xp.copyto(output, xp.where(condition, x, y))


def _bitcast(binding: Binding) -> Run | None:
    xp, output = binding.library.xp, binding.output
    bits = binding.inputs[0].view(output.dtype)
    return lambda: xp.copyto(output, bits)


def _kept(binding: Binding) -> Run | None:
    """Bind rounding; integers stay, while cupy would convert them to floats."""
    (x,), output, xp = binding.inputs, binding.output, binding.library.xp
    if binding.narrow or output.dtype.kind == "f":
        return bind_float(binding)
    return lambda: xp.copyto(output, x)


def _floor(binding: Binding) -> Run | None:
    return None if binding.narrow or binding.output.dtype.kind == "f" else _kept(binding)


def _divide(binding: Binding) -> Run | None:
    return bind_float(binding) or _composed(_whole_divide, "iu", binding)


def _power(binding: Binding) -> Run | None:
    (x, y), output, xp = binding.inputs, binding.output, binding.library.xp
    if binding.narrow or output.dtype.kind != "f":
        return None
    known = binding.step.inputs[1].data
    if known is not None and known.size and np.all(known == 2):  # noqa: PLR2004  # the square
        return lambda: xp.multiply(x, x, out=output)
    return lambda: xp.power(x, y, out=output)


def _cast(binding: Binding) -> Run | None:
    (x,), output, xp, step = binding.inputs, binding.output, binding.library.xp, binding.step
    source, target = x.dtype, output.dtype
    if step.inputs[0].dtype == step.output.dtype:
        return lambda: xp.copyto(output, x)
    if binding.narrow or (source.kind == "f" and target == np.uint64):
        return None
    if source == np.float64 and target == np.float16:
        # cupy rounds to float32 first
        return None
    if target.kind == "b":
        return lambda: xp.not_equal(x, 0, out=output)
    if source.kind == "f" and target.kind in "iu":
        # values beyond the range of a narrow integer wrap, which C leaves undefined
        return lambda: xp.copyto(output, x.astype(np.dtype(np.int64)), casting="unsafe")
    return lambda: xp.copyto(output, x, casting="unsafe")


def _erf(function: Any, binding: Binding) -> Run | None:
    (x,), output, xp = binding.inputs, binding.output, binding.library.xp
    if binding.narrow:
        return None
    if output.dtype != np.float16:
        return lambda: function(x, out=output)
    single = np.dtype(np.float32)
    return lambda: xp.copyto(output, function(x.astype(single)), casting="unsafe")


_REDUCTIONS: Final[Mapping[Operator, str]] = {
    Operator.SUM: "sum", Operator.PROD: "prod", Operator.REDUCE_MAX: "amax",
    Operator.REDUCE_MIN: "amin",
}  # fmt: skip


def _reduce(binding: Binding) -> Run | None:
    (x,), output, xp, step = binding.inputs, binding.output, binding.library.xp, binding.step
    axes = tuple(step.parameters["axes"])
    if binding.narrow or not x.size:
        return None
    if not axes:
        return lambda: xp.copyto(output, x)
    function = getattr(xp, _REDUCTIONS[step.operator])
    if step.operator not in {Operator.SUM, Operator.PROD}:
        return lambda: function(x, axis=axes, out=output, keepdims=True)
    if x.dtype != np.float16:
        return lambda: function(x, axis=axes, dtype=x.dtype, out=output, keepdims=True)
    wide = np.dtype(np.float32)

    def reduce() -> None:
        result = function(x.astype(wide), axis=axes, dtype=wide, keepdims=True)
        xp.copyto(output, result, casting="unsafe")

    return reduce


def _arg(binding: Binding) -> Run | None:
    """Bind the first or last position of the extreme; cupy's own choice among ties is undefined."""
    (x,), output, xp, step = binding.inputs, binding.output, binding.library.xp, binding.step
    axis = step.parameters["axis"] % x.ndim
    if binding.narrow or not x.size:
        return None
    size = x.shape[axis]
    is_last = bool(step.parameters.get("last"))
    extreme = xp.amax if step.operator is Operator.ARG_MAX else xp.amin
    choose = xp.amax if is_last else xp.amin
    shape = tuple(size if number == axis else 1 for number in range(x.ndim))
    positions = xp.asarray(np.arange(size, dtype=np.int64).reshape(shape))
    none = xp.asarray(np.array(-1 if is_last else size, np.int64))

    def arg() -> None:
        hit = xp.equal(x, extreme(x, axis=axis, keepdims=True))
        if x.dtype.kind == "f":
            hit = xp.logical_or(hit, xp.isnan(x))
        choose(xp.where(hit, positions, none), axis=axis, out=output, keepdims=True)

    return arg


def _matmul(binding: Binding) -> Run | None:
    (x, y), output, xp = binding.inputs, binding.output, binding.library.xp
    if not x.size or not y.size:
        return binding.library.filling(output, 0, binding.step.output.dtype)
    if binding.narrow or output.dtype != np.float16:
        return bind_matmul(binding)
    wide = np.dtype(np.float32)

    def matmul() -> None:
        xp.copyto(output, xp.matmul(x.astype(wide), y.astype(wide)), casting="unsafe")

    return matmul


def _argsort(binding: Binding) -> Run | None:
    (x,), output, xp = binding.inputs, binding.output, binding.library.xp
    if binding.narrow or not x.size:
        return None
    last = x.shape[-1] - 1
    if not binding.step.parameters.get("descending"):
        return lambda: xp.copyto(output, xp.argsort(x, axis=-1))
    # equal elements keep their order: sort the reversed axis, and reverse the result
    mirrored = x[..., ::-1]
    return lambda: xp.subtract(last, xp.argsort(mirrored, axis=-1)[..., ::-1], out=output)


def _take(checks: IndexChecks, binding: Binding) -> Run | None:
    (data, indices), output, xp = binding.inputs, binding.output, binding.library.xp
    size = data.shape[1]
    if not size:
        return None
    check = checks.bind(binding.step, indices, size)
    if not output.size:
        return check

    def take() -> None:
        check()
        xp.take(data, indices, axis=1, out=output)

    return take


def _put(checks: IndexChecks, binding: Binding) -> Run | None:
    (data, indices, updates), output, xp = binding.inputs, binding.output, binding.library.xp
    step, size = binding.step, data.shape[0]
    if step.parameters.get("reduction", "none") != "none" or not size:
        # the order of atomic additions differs between runs
        return None
    check = checks.bind(step, indices, size)

    def put() -> None:
        check()
        xp.copyto(output, data)
        if not updates.size:
            return
        # all updates of one row write the last of them, so their order does not matter
        order = xp.argsort(indices, axis=-1)
        last = xp.subtract(xp.searchsorted(indices[order], indices, side="right"), 1)
        output[indices] = updates[order[last]]

    return put


_BINDERS: Final[Mapping[Operator, Binder]] = {
    Operator.RASTER: _raster,
    Operator.SELECT: _select,
    Operator.BITCAST: _bitcast,
    Operator.CAST: _cast,
    Operator.SIGN: partial(_composed, _sign, "f"),
    Operator.CEIL: _floor,
    Operator.FLOOR: _floor,
    Operator.ROUND: _kept,
    Operator.DIV: _divide,
    Operator.POW: _power,
    Operator.MOD: partial(_composed, _mod, "f"),
    Operator.FMOD: partial(_composed, _whole_fmod, "iu"),
    Operator.SHIFT_LEFT: partial(_composed, _shift_left, "iu"),
    Operator.SHIFT_RIGHT: partial(_composed, _shift_right, "iu"),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    Operator.ARG_MAX: _arg,
    Operator.ARG_MIN: _arg,
    Operator.MATMUL: _matmul,
    Operator.ARGSORT: _argsort,
}
"""Kernels that check no indices; each operator not listed is a function with ``out``."""
