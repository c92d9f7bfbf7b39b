"""Rasters with written-out outputs, element by element."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.program import Array, DType
from walle_stream.engine.region import Region, Shape, View
from walle_stream.testing.backend.steps import elements


@dataclass(frozen=True, slots=True)
class RasterFact:
    """A raster and the source of each element of its output."""

    name: str
    inputs: Sequence[Shape]
    shape: Shape
    regions: Sequence[Region]
    sources: Sequence[Any]
    """Source per output element: an index into input 0, or a pair of input and index, or None for
    the fill. With ``accumulate``: a list of indexes whose elements are added to the fill."""
    has_fill: bool = False
    """Whether the fill is one instead of zero."""
    accumulate: bool = False

    @property
    def is_of_every_dtype(self) -> bool:
        """Whether the raster only moves elements, so that it works for every dtype."""
        return not self.accumulate

    @property
    def has_zeros(self) -> bool:
        """Whether elements are filled with zero."""
        return None in self.sources and not self.has_fill

    def of(self, dtype: DType) -> tuple[list[Array], Array, dict[str, Any]]:
        """Return the raster for a dtype.

        Args:
            dtype: Any dtype that ``is_of_every_dtype`` allows.

        Returns:
            Inputs, the wanted output, and the parameters of the step.
        """
        fill: Any = (1 if self.has_fill else 0) if dtype.kind != "O" else "x" * self.has_fill
        parameters = {
            "regions": tuple(self.regions), "shape": self.shape, "dtype": dtype,
            "fill": fill if self.accumulate or None in self.sources else None,
            "accumulate": self.accumulate,
        }  # fmt: skip
        if self.accumulate:
            # small enough for exact sums in every dtype
            inputs = [np.arange(prod(each)).reshape(each).astype(dtype) for each in self.inputs]
            sums = [fill + sum(places) for places in self.sources]
            return inputs, np.array(sums).astype(dtype).reshape(self.shape), parameters
        inputs = [elements(dtype, each, number) for number, each in enumerate(self.inputs)]
        wanted = np.full(prod(self.shape), fill, dtype)
        for place, source in enumerate(self.sources):
            if source is not None:
                number, element = source if isinstance(source, tuple) else (0, source)
                wanted[place] = inputs[number].reshape(-1)[element]
        return inputs, wanted.reshape(self.shape), parameters


def _region(
    size: Shape, source: tuple[int, Shape], target: tuple[int, Shape], number: int = 0
) -> Region:
    return Region(size, View(*source), View(*target), number)


RASTERS: Final = (
    RasterFact("a scalar", [()], (), [_region((), (0, ()), (0, ()))], [0]),
    RasterFact("nothing", [(0, 3)], (2, 0), [], []),
    RasterFact("nothing read, all filled", [(0,)], (3,), [], [None] * 3, has_fill=True),
    RasterFact("backwards", [(4,)], (4,), [_region((4,), (3, (-1,)), (0, (1,)))], [3, 2, 1, 0]),
    RasterFact(
        "written backwards", [(4,)], (4,), [_region((4,), (0, (1,)), (3, (-1,)))], [3, 2, 1, 0]
    ),
    RasterFact("one element spread", [(3,)], (2, 2), [_region((2, 2), (1, (0, 0)), (0, (2, 1)))],
               [1, 1, 1, 1]),
    RasterFact("a row spread", [(3,)], (2, 3), [_region((2, 3), (0, (0, 1)), (0, (3, 1)))],
               [0, 1, 2, 0, 1, 2]),
    RasterFact("transposed", [(2, 3)], (3, 2), [_region((3, 2), (0, (1, 3)), (0, (2, 1)))],
               [0, 3, 1, 4, 2, 5]),
    RasterFact("a diagonal", [(1,)], (3, 3), [_region((3,), (0, (0,)), (0, (4,)))],
               [0, None, None, None, 0, None, None, None, 0], has_fill=True),
    RasterFact("padded with zeros", [(2,)], (4,), [_region((2,), (0, (1,)), (1, (1,)))],
               [None, 0, 1, None]),
    RasterFact("windows that overlap", [(4,)], (3, 2), [_region((3, 2), (0, (1, 1)), (0, (2, 1)))],
               [0, 1, 1, 2, 2, 3]),
    RasterFact(
        "two inputs, one after the other", [(2,), (3,)], (5,),
        [_region((3,), (0, (1,)), (2, (1,)), 1), _region((2,), (0, (1,)), (0, (1,)), 0)],
        [0, 1, (1, 0), (1, 1), (1, 2)],
    ),
    RasterFact(
        "two inputs, in turns, one backwards", [(2,), (2,)], (4,),
        [_region((2,), (0, (1,)), (0, (2,)), 0), _region((2,), (1, (-1,)), (1, (2,)), 1)],
        [0, (1, 1), 1, (1, 0)],
    ),
    RasterFact(
        "every second, of five axes", [(2, 1, 2, 1, 4)], (2, 2, 2),
        [_region((2, 1, 2, 1, 2), (1, (8, 8, 4, 4, 2)), (0, (4, 4, 2, 2, 1)))],
        [1, 3, 5, 7, 9, 11, 13, 15],
    ),
    RasterFact(
        "a region without elements", [(2,)], (2,),
        [_region((0, 5), (9, (1, 1)), (9, (1, 1))), _region((2,), (0, (1,)), (0, (1,)))],
        [0, 1],
    ),
    RasterFact(
        "an axis of one element that steps out", [(2,)], (2,),
        [_region((1, 2), (0, (-99, 1)), (0, (99, 1)))], [0, 1],
    ),
    RasterFact(
        "sums of two regions", [(4,)], (3,),
        [_region((3,), (0, (1,)), (0, (1,))), _region((3,), (1, (1,)), (0, (1,)))],
        [[0, 1], [1, 2], [2, 3]], accumulate=True,
    ),
    RasterFact(
        "sums of parts over a fill", [(4,)], (4,),
        [_region((2,), (3, (-1,)), (1, (1,))), _region((2,), (2, (0,)), (2, (1,)))],
        [[], [3], [2, 2], [2]], has_fill=True, accumulate=True,
    ),
)  # fmt: skip
