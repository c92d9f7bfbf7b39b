"""Programs: steps of atomic operators and rasters over tensors of known shapes.

Lowering makes programs, passes rewrite them, and backends run them. Each tensor is made by one
step, and steps are in topological order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.region import Region, Shape

type Array = np.ndarray[Any, Any]
type DType = np.dtype[Any]


class ShapeUnknown(Exception):  # noqa: N818  # a signal between lowering and the module, no error
    """A rule asked for the shape of a tensor that is known only after a run."""


class Tensor:
    """One value of a program, compared by identity."""

    __slots__ = ("_shape", "data", "dtype", "name")

    def __init__(
        self, shape: Shape | None, dtype: DType, data: Array | None = None, name: str = ""
    ) -> None:
        """Describe a value; ``name`` is for messages.

        ``shape`` is None if it depends on values, see ``NONZERO``. The dtype of strings is
        ``object``. ``data`` has the elements if they are known, row-major, and is never written to.
        """
        self._shape = shape
        self.dtype = dtype
        self.data = data
        self.name = name

    @property
    def shape(self) -> Shape:
        """Sizes of its axes.

        Raises:
            ShapeUnknown: The shape depends on values.
        """
        if self._shape is None:
            raise ShapeUnknown(self)
        return self._shape

    @property
    def has_shape(self) -> bool:
        """Whether the shape is known before the run."""
        return self._shape is not None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the elements."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        """Return name, dtype and shape."""
        known = " const" if self.data is not None else ""
        return f"<{self.name or 'tensor'} {self.dtype.name}{list(self._shape or ())}{known}>"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operation."""

    operator: Operator
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """See the operator's docstring; a raster has ``regions``, ``fill`` and ``accumulate``."""
    origin: str = ""

    @classmethod
    def raster(cls, source: Tensor, output: Tensor, region: Region, origin: str) -> "Step":
        """Make a raster of one region that covers the whole output."""
        parameters = {
            "regions": (region,), "shape": output.shape, "dtype": output.dtype, "fill": None,
            "accumulate": False,
        }  # fmt: skip
        return cls(Operator.RASTER, (source,), (output,), parameters, origin)

    @property
    def output(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of a raster."""
        result: tuple[Region, ...] = self.parameters["regions"]
        return result


@dataclass(slots=True)
class Program:
    """Steps from inputs to outputs."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    steps: list[Step]
    operators: Mapping[str, str] = field(default_factory=dict)
    """ONNX operators of the model's nodes by the ``origin`` of their steps; only for display."""

    def replaced(self, steps: Iterable[Step]) -> "Program":
        """Return a copy with other steps."""
        return Program(self.inputs, self.outputs, list(steps), self.operators)
