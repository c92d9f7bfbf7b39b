"""Tensors: expressions that the host evaluates, many in one request.

``ctx.tensor(values)`` makes a tensor. Operators and methods make further tensors
without computing anything. ``tolist``, ``item`` and ``tobytes`` get the value from
the host, and ``ctx.evaluate(a, b)`` gets several at once. A known value is kept, so
the tensor is a constant in later expressions.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Final, Protocol


class Host(Protocol):
    """The way to the host."""

    def evaluate(self, tensors: "Iterable[Tensor]") -> None:
        """Compute all tensors without a value, in one request."""


CODES: Final[dict[str, Any]] = {
    "float32": "f",
    "float64": "d",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
}
"""Type codes of ``array`` for the dtypes."""

EARLIER: Final = "earlier"
"""Operator of a tensor whose value comes from an earlier request and is not known yet."""

_MAX_DIMS: Final = 8

type _Value = tuple[str, tuple[int, ...], bytes]


def _binary(operator: str, *, is_right: bool = False) -> "Callable[[Tensor, object], Tensor]":
    def method(self: "Tensor", other: object) -> "Tensor":
        tensor = _as_tensor(self._host_, other)
        return Tensor(self._host_, operator, (tensor, self) if is_right else (self, tensor))

    method.__name__ = method.__qualname__ = operator  # the name in a script's errors
    return method


def _unary(operator: str) -> "Callable[[Tensor], Tensor]":
    def method(self: "Tensor", /) -> "Tensor":
        return self._then_(operator)

    method.__name__ = method.__qualname__ = operator
    return method


class Tensor:
    """An immutable expression."""

    __slots__ = ("_host_", "_inputs_", "_operator_", "_parameters_", "_value_")

    def __init__(
        self,
        host: Host,
        operator: str,
        inputs: "tuple[Tensor, ...]" = (),
        parameters: dict[str, Any] | None = None,
        value: _Value | None = None,
    ) -> None:
        """Make an expression; scripts use ``ctx.tensor``.

        The operator ``const`` has a value: dtype, shape and elements.
        """
        self._host_ = host
        self._operator_ = operator
        self._inputs_ = inputs
        self._parameters_ = {} if parameters is None else parameters
        self._value_ = value

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the tensor, from the host."""
        return self._known_()[1]

    @property
    def dtype(self) -> str:
        """``float32``, ``float64``, ``int32``, ``int64`` or ``uint8``, from the host."""
        return self._known_()[0]

    def tolist(self) -> Any:
        """Return the elements from the host as nested lists; a number for no dimensions."""
        dtype, shape, data = self._known_()
        values: list[Any] = list(memoryview(data).cast(CODES[dtype]))
        for size in reversed(shape[1:]):
            values = [values[at : at + size] for at in range(0, len(values), size or 1)]
        return values if shape else values[0]

    def item(self) -> int | float:
        """Return the only element, from the host.

        Raises:
            ValueError: The tensor does not have exactly one element.
        """
        dtype, shape, data = self._known_()
        if prod(shape) != 1:
            raise ValueError(f"a tensor of shape {shape} is not one number: use tolist()")
        number: int | float = memoryview(data).cast(CODES[dtype])[0]
        return number

    def tobytes(self) -> bytes:
        """Return the elements from the host in row-major order, little-endian."""
        return self._known_()[2]

    def _count_(self) -> int:
        return prod(self._known_()[1])

    def _known_(self) -> _Value:
        if self._value_ is None:
            self._host_.evaluate((self,))
        value = self._value_
        if value is None:
            raise RuntimeError("the host did not answer")
        return value

    def _then_(self, operator: str, **parameters: Any) -> "Tensor":
        return Tensor(self._host_, operator, (self,), parameters)

    # element by element, shapes broadcast as in numpy; matmul multiplies stacks of matrices
    __add__ = __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub"), _binary("sub", is_right=True)
    __mul__ = __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", is_right=True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", is_right=True)
    __matmul__, __rmatmul__ = _binary("matmul"), _binary("matmul", is_right=True)
    maximum, minimum = _binary("maximum"), _binary("minimum")
    __neg__, abs, exp, log = _unary("neg"), _unary("abs"), _unary("exp"), _unary("log")
    sqrt, tanh, sigmoid, relu = _unary("sqrt"), _unary("tanh"), _unary("sigmoid"), _unary("relu")

    def softmax(self, axis: int = -1) -> "Tensor":
        """Return the softmax along a dimension."""
        return self._then_("softmax", axis=axis)

    def round(self, digits: int = 0) -> "Tensor":
        """Round to 0 to 15 decimal places, ties to even.

        float32 holds about seven digits in all, float64 fifteen.
        """
        return self._then_("round", digits=digits)

    def sum(self, axis: int | None = None) -> "Tensor":
        """Return the sum along a dimension; None for all elements."""
        return self._then_("sum", axis=axis)

    def mean(self, axis: int | None = None) -> "Tensor":
        """Return the mean along a dimension; None for all elements."""
        return self._then_("mean", axis=axis)

    def max(self, axis: int | None = None) -> "Tensor":
        """Return the maximum along a dimension; None for all elements."""
        return self._then_("max", axis=axis)

    def min(self, axis: int | None = None) -> "Tensor":
        """Return the minimum along a dimension; None for all elements."""
        return self._then_("min", axis=axis)

    def argmax(self, axis: int | None = None) -> "Tensor":
        """Return the index of the maximum as int64; None for all, in row-major order."""
        return self._then_("argmax", axis=axis)

    def reshape(self, *shape: int) -> "Tensor":
        """Return the same elements in another shape; one dimension may be -1."""
        return self._then_("reshape", shape=list(shape))

    def transpose(self, *axes: int) -> "Tensor":
        """Return the tensor with reordered dimensions; without ``axes`` reversed."""
        return self._then_("transpose", axes=list(axes) or None)

    def take(self, indices: "Tensor | Sequence[int]", axis: int = 0) -> "Tensor":
        """Return the slices at indices of a dimension, like an embedding."""
        if not isinstance(indices, Tensor):
            indices = make_tensor(self._host_, indices, None if indices else "int64", None)
        return Tensor(self._host_, "take", (self, indices), {"axis": axis})

    def astype(self, dtype: str) -> "Tensor":
        """Return the tensor with another dtype; see ``dtype``."""
        return self._then_("astype", dtype=dtype)

    def __repr__(self) -> str:
        """Show the value if it is known; only an emitted tensor gets it from the host."""
        if self._value_ is None and self._operator_ == EARLIER:
            self._known_()  # a script must not see whether its tensor waits
        if self._value_ is None:
            return f"Tensor({self._operator_!r}, not evaluated)"
        return f"Tensor({self.tolist()!r}, {self._value_[0]!r})"


def make_tensor(
    host: Host, values: object, dtype: str | None, shape: Sequence[int] | None
) -> Tensor:
    """Make a constant; see ``Context.tensor``.

    Raises:
        TypeError: A value is not a number.
        ValueError: Lists have different lengths, there are too many dimensions,
            the dtype is unknown, or the shape does not fit.
    """
    if dtype is not None and dtype not in CODES:
        raise ValueError(f"a tensor's dtype is one of {', '.join(CODES)}, not {dtype!r}")
    if isinstance(values, (bytes, bytearray, memoryview)):
        kind = dtype or "float32"
        data = b"".join((values,))
        sizes = (len(data) // array(CODES[kind]).itemsize,) if shape is None else tuple(shape)
    else:
        numbers, sizes = _flattened(values)
        are_whole = all(type(number) is int for number in numbers)
        kind = dtype or ("int64" if are_whole and numbers else "float32")
        try:
            data = array(CODES[kind], numbers).tobytes()
        except TypeError:
            data = array(CODES[kind], [int(number) for number in numbers]).tobytes()
        sizes = sizes if shape is None else tuple(shape)
    if prod(sizes) * array(CODES[kind]).itemsize != len(data) or min(sizes, default=0) < 0:
        raise ValueError(f"{len(data)} bytes of {kind} do not fill the shape {sizes}")
    return Tensor(host, "const", value=(kind, sizes, data))


def concatenate(host: Host, tensors: Iterable[Tensor], axis: int) -> Tensor:
    """Concatenate one or more tensors along a dimension."""
    return Tensor(host, "concat", tuple(map(checked, tensors)), {"axis": axis})


def run_model(host: Host, model: str, inputs: Iterable[object], output: int) -> Tensor:
    """Run a model of the host on tensors, or on their values; see ``Context.run_model``."""
    tensors = tuple(_as_tensor(host, value) for value in inputs)
    return Tensor(host, "model", tensors, {"name": model, "output": output})


def checked(value: Tensor) -> Tensor:
    """Return a tensor of a script; refuse anything else.

    Raises:
        TypeError: The value is not a tensor.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"a tensor is needed here, not {type(value).__name__}: ctx.tensor(...)")
    return value


def _as_tensor(host: Host, value: object) -> Tensor:
    return value if isinstance(value, Tensor) else make_tensor(host, value, None, None)


def _flattened(values: object) -> tuple[list[Any], tuple[int, ...]]:
    shape: list[int] = []
    level: list[Any] = [values]
    while level and isinstance(level[0], (list, tuple)):
        sizes = {len(row) if isinstance(row, (list, tuple)) else -1 for row in level}
        if len(sizes) != 1 or -1 in sizes or len(shape) == _MAX_DIMS:
            raise ValueError(f"a tensor's lists have one length each, at most {_MAX_DIMS} deep")
        shape.append(sizes.pop())
        level = [number for row in level for number in row]
    for number in level:
        if type(number) not in {int, float, bool}:
            raise TypeError(f"a tensor holds numbers, not {type(number).__name__}")
    return level, tuple(shape)
