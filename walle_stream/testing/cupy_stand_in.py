"""A stand-in for cupy over numpy, for tests of the cupy backend on machines without a GPU.

It is as strict as cupy. Its arrays are not numpy arrays, and only ``asarray`` and ``asnumpy``
convert between them, so a forgotten copy fails here, too. Results that differ between cupy and
numpy, or that cupy leaves open, also differ here, so code that relies on numpy's results fails.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from walle_stream.engine.backends.device_kernels import Device
from walle_stream.engine.backends.kernels import erf
from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import is_foreign

_SAME: Final = (
    "abs", "negative", "invert", "isnan", "add", "subtract", "multiply", "minimum", "maximum",
    "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "not_equal", "less", "less_equal",
    "greater_equal", "logical_and", "logical_or", "floor_divide",
)  # fmt: skip
_OF_FLOATS: Final = (
    "ceil", "floor", "rint", "sqrt", "exp", "log", "sin", "cos", "tan", "arcsin", "arccos",
    "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "divide", "power",
    "copysign",
)  # fmt: skip
"""Functions for floats alone: cupy turns integers into float64, or into nothing that we need."""


class DeviceArray:
    """An array that numpy cannot read. Not thread-safe, like numpy's arrays."""

    __array_ufunc__ = None
    __slots__ = ("_held",)

    def __init__(self, held: Array) -> None:
        """Wrap a numpy array without copying.

        Args:
            held: The elements.

        Raises:
            TypeError: cupy lacks the dtype.
        """
        if is_foreign(held.dtype) or held.dtype.kind not in "biufc":
            raise TypeError(f"Unsupported dtype {held.dtype}")
        self._held = held

    def __array__(self, *_given: Any, **_named: Any) -> Array:
        """Refuse the conversion, as cupy does.

        Raises:
            TypeError: Always.
        """
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __bool__(self) -> bool:
        """Refuse the truth value, for which cupy would wait for the device.

        Raises:
            TypeError: Always.
        """
        raise TypeError("the truth of an array would wait for the device")

    def __iter__(self) -> Any:
        """Refuse the iteration, which would wait for the device at each element.

        Raises:
            TypeError: Always.
        """
        raise TypeError("the elements of an array would wait for the device")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its axes."""
        found: tuple[int, ...] = self._held.shape
        return found

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of its axes in bytes."""
        return self._held.strides

    @property
    def flags(self) -> Any:
        """How its elements lie in memory."""
        return self._held.flags

    @property
    def dtype(self) -> DType:
        """Dtype of its elements, always one of numpy's own."""
        found: DType = self._held.dtype
        return found

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._held.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._held.ndim

    def __getitem__(self, key: Any) -> "DeviceArray":
        """Return a view, even of one element, or rows by indices, which wrap around."""
        if isinstance(key, DeviceArray):
            return DeviceArray(self._held[_held(key) % self._held.shape[0]])
        given = key if isinstance(key, tuple) else (key,)
        return DeviceArray(self._held[given if Ellipsis in given else (*given, ...)])

    def __setitem__(self, key: "DeviceArray", value: "DeviceArray") -> None:
        """Replace rows; for a repeated index, the row that remains is unspecified."""
        rows = _held(key) % self._held.shape[0]
        self._held[rows[::-1]] = _held(value)[::-1]

    def reshape(self, *shape: Any) -> "DeviceArray":
        """Return a view, or a copy if no view is possible."""
        return DeviceArray(self._held.reshape(*shape))

    def view(self, dtype: Any) -> "DeviceArray":
        """Return the same bytes as another dtype."""
        return DeviceArray(self._held.view(dtype))

    def astype(self, dtype: DType) -> "DeviceArray":
        """Convert the elements as CUDA does."""
        return DeviceArray(_converted(self._held, dtype).copy())

    def fill(self, value: Any) -> None:
        """Set every element.

        Raises:
            ValueError: The value is not a scalar.
        """
        if not np.isscalar(value):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._held.fill(value)


class CupyStandIn:
    """The needed part of cupy's module."""

    def __init__(self) -> None:
        """Wrap numpy's functions with checks of their arguments."""
        self.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided))
        same: dict[str, Any] = {name: getattr(np, name) for name in _SAME}
        floats: dict[str, Any] = {name: getattr(np, name) for name in _OF_FLOATS}
        for name, function in {**same, **floats, **_OTHERS}.items():
            setattr(self, name, _checked(name, function, of_floats=name in floats))

    # Copies between host and device

    def asarray(self, array: Any) -> DeviceArray:
        """Copy to the device."""
        return DeviceArray(np.array(_held(array) if isinstance(array, DeviceArray) else array))

    def asnumpy(self, array: DeviceArray) -> Array:
        """Copy to the host."""
        return _held(array).copy()

    # Memory

    def empty(self, shape: Any, dtype: DType) -> DeviceArray:
        """Make an uninitialized array, here filled with a pattern of bytes."""
        made = np.empty(shape, dtype)
        made.reshape(-1).view(np.uint8).fill(0xA5)
        return DeviceArray(made)

    def zeros(self, shape: Any, dtype: DType) -> DeviceArray:
        """Make an array of zeros."""
        return DeviceArray(np.zeros(shape, dtype))

    def full_like(self, array: DeviceArray, value: Any) -> DeviceArray:
        """Make an array filled with one number."""
        return DeviceArray(np.full(array.shape, value, array.dtype))

    def copyto(self, target: DeviceArray, source: DeviceArray, casting: Any = "same_kind") -> None:
        """Copy elements with broadcasting and conversion.

        Raises:
            TypeError: ``casting`` does not allow the conversion.
        """
        given = _held(source)
        if not np.can_cast(given.dtype, target.dtype, casting):
            raise TypeError(f"Cannot cast {given.dtype} to {target.dtype} in {casting} mode")
        np.copyto(_held(target), _converted(given, target.dtype))

    # Functions

    def where(self, condition: DeviceArray, x: DeviceArray, y: DeviceArray) -> DeviceArray:
        """Choose elements by a condition."""
        return DeviceArray(np.where(_held(condition), _held(x), _held(y)))

    def sum(
        self, x: DeviceArray, axis: Any, dtype: DType, out: Any = None, keepdims: bool = False
    ) -> DeviceArray:
        """Sum along axes."""
        return _reduced(np.sum, x, out, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(
        self, x: DeviceArray, axis: Any, dtype: DType, out: Any = None, keepdims: bool = False
    ) -> DeviceArray:
        """Multiply along axes."""
        return _reduced(np.prod, x, out, axis=axis, dtype=dtype, keepdims=keepdims)

    def amax(
        self, x: DeviceArray, axis: Any, out: Any = None, keepdims: bool = False
    ) -> DeviceArray:
        """Return the greatest elements; nan wins."""
        return _reduced(np.amax, x, out, axis=axis, keepdims=keepdims)

    def amin(
        self, x: DeviceArray, axis: Any, out: Any = None, keepdims: bool = False
    ) -> DeviceArray:
        """Return the least elements; nan wins."""
        return _reduced(np.amin, x, out, axis=axis, keepdims=keepdims)

    def any(self, x: DeviceArray, out: Any = None) -> DeviceArray:
        """Return whether any element is true, as an array on the device."""
        return _reduced(np.any, x, out)

    def matmul(self, x: DeviceArray, y: DeviceArray, out: Any = None) -> DeviceArray:
        """Multiply matrices."""
        with np.errstate(all="ignore"):
            made = np.matmul(_held(x), _held(y))
        return _given(made, out)

    def argsort(self, x: DeviceArray, axis: int = -1) -> DeviceArray:
        """Return the indices of a sort, which is always stable."""
        return DeviceArray(np.argsort(_held(x), axis=axis, kind="stable"))

    def searchsorted(self, x: DeviceArray, values: DeviceArray, side: Any = "left") -> DeviceArray:
        """Return positions of values in a sorted array."""
        return DeviceArray(np.asarray(np.searchsorted(_held(x), _held(values), side=side)))

    def take(self, x: DeviceArray, indices: DeviceArray, axis: int, out: Any = None) -> DeviceArray:
        """Take rows; indices wrap around."""
        held = _held(x)
        return _given(np.take(held, _held(indices) % held.shape[axis], axis=axis), out)


def stand_in() -> Device:
    """Return a device on the host, for ``engine.backends.cupy.CupyBackend``."""

    def erf_of(x: DeviceArray, out: DeviceArray | None = None) -> DeviceArray:
        if x.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
            raise TypeError(f"erf of {x.dtype} is float64 in cupy")
        return _given(erf(_held(x)), out)

    return Device(CupyStandIn(), erf_of)


def _held(given: Any) -> Array:
    if not isinstance(given, DeviceArray):
        raise TypeError(f"Unsupported type {type(given)}")
    return given._held  # noqa: SLF001  # the module's own class


def _as_strided(x: DeviceArray, shape: Any, strides: Any) -> DeviceArray:
    return DeviceArray(np.lib.stride_tricks.as_strided(_held(x), shape, strides))


def _given(made: Any, out: DeviceArray | None) -> DeviceArray:
    found = np.asarray(made)
    if out is None:
        return DeviceArray(found)
    held = _held(out)
    if held.shape != found.shape:
        raise ValueError(f"Output shape mismatch: {held.shape}, not {found.shape}")
    if not np.can_cast(found.dtype, held.dtype, "same_kind"):
        raise TypeError(f"output (typecode {held.dtype}) could not be coerced to {found.dtype}")
    np.copyto(held, _converted(found, held.dtype))
    return out


def _reduced(function: Any, x: DeviceArray, out: Any, **named: Any) -> DeviceArray:
    if not x.size and function in {np.amax, np.amin}:
        raise ValueError("zero-size array to reduction operation which has no identity")
    with np.errstate(all="ignore"):
        return _given(function(_held(x), **named), out)


def _checked(name: str, function: Any, *, of_floats: bool) -> Any:
    def call(*given: Any, out: DeviceArray | None = None) -> DeviceArray:
        plain: list[Any] = [
            each if isinstance(each, bool | int | float) else _held(each) for each in given
        ]
        if of_floats and plain[0].dtype.kind != "f":
            raise TypeError(f"{name} of {plain[0].dtype} is not used by our operators in cupy")
        with np.errstate(all="ignore"):
            return _given(function(*plain), out)

    return call


def _converted(x: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        if x.dtype == np.float64 and dtype == np.float16:
            return x.astype(np.float32).astype(dtype)
        if x.dtype.kind == "f" and dtype.kind in "iu":
            ends = np.iinfo(dtype)
            inside = (x > ends.min - 1.0) & (x < ends.max + 1.0)
            made = np.where(x > 0, ends.max, ends.min).astype(dtype)
            made[inside] = x[inside].astype(dtype)
            made[np.isnan(x)] = 0
            return made
        return x.astype(dtype)


def _sign(x: Array) -> Any:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _mod(x: Array, y: Array) -> Any:
    if x.dtype.kind == "f":
        return x - np.floor(x / y) * y
    return np.remainder(x, y)


def _fmod(x: Array, y: Array) -> Any:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, 0, np.fmod(x.astype(np.float64), y.astype(np.float64))).astype(x.dtype)


def _left_shift(x: Array, y: Array) -> Any:
    return np.left_shift(x, y & (8 * x.dtype.itemsize - 1))


def _right_shift(x: Array, y: Array) -> Any:
    return np.right_shift(x, y & (8 * x.dtype.itemsize - 1))


_OTHERS: Final[Mapping[str, Any]] = {
    "sign": _sign, "mod": _mod, "remainder": _mod, "fmod": _fmod, "left_shift": _left_shift,
    "right_shift": _right_shift,
}  # fmt: skip
"""Functions whose results differ between cupy and numpy."""
