"""A device that numpy cannot read: what goes there and back, and whether indices were right.

Elements of a dtype that the device has not (``ml_dtypes``) lie there as whole numbers
as wide: they are moved and chosen there, and computed with on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from walle_stream.engine.backends.library import Run
from walle_stream.engine.dtypes import is_foreign
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Step
from walle_stream.errors import EngineError


@dataclass(frozen=True, slots=True)
class Device:
    """What a backend needs of cupy."""

    xp: Any
    """The module."""
    erf: Any
    """``cupyx.scipy.special.erf``, of float32 and float64."""

    def upload(self, array: Array) -> Any:
        """Copy an array of any dtype but text, row-major, as ``stored(array.dtype)``."""
        plain = np.ascontiguousarray(array).reshape(array.shape)
        return self.xp.asarray(plain.view(stored(array.dtype)))

    def download(self, array: Any, dtype: DType) -> Array:
        """Copy to an array of the caller's own; waits for what is under way."""
        result: Array = self.xp.asnumpy(array)
        return result if result.dtype == dtype else result.view(dtype)


def stored(dtype: DType) -> DType:
    """Give the dtype that elements have on the device: their own, or unsigned numbers as wide."""
    known = not is_foreign(dtype) and dtype.kind in "biufc"
    return dtype if known else np.dtype(f"u{dtype.itemsize}")


def is_narrow(dtype: DType) -> bool:
    """Whether the host computes with a dtype: one of ``ml_dtypes``, or complex numbers."""
    return bool(is_foreign(dtype) or dtype.kind not in "biuf")


class IndexChecks:
    """Whether indices were in range: asked for once, at the end of a run.

    Each answer would wait for the device; meanwhile an index that is out of range
    wraps around, as cupy's do, and reads what is there.
    """

    def __init__(self, device: Device, steps: Sequence[Step]) -> None:
        """Make room for the answers."""
        self._device = device
        count = sum(step.operator in {Operator.TAKE, Operator.PUT} for step in steps)
        self._wrong = device.xp.zeros(count, np.dtype(np.bool_)) if count else None
        self._bound: list[tuple[Step, int]] = []

    def bind(self, step: Step, indices: Any, size: int) -> Run:
        """Make a call that looks at a step's indices, of an axis of a size, on the device."""
        xp, number = self._device.xp, len(self._bound)
        assert self._wrong is not None  # noqa: S101
        self._bound.append((step, size))
        wrong = self._wrong[number : number + 1].reshape(())

        def check() -> None:
            low, high = xp.less(indices, 0), xp.greater_equal(indices, size)
            xp.any(xp.logical_or(low, high), out=wrong)

        return check

    def start(self) -> None:
        """Forget the run before."""
        if self._wrong is not None:
            self._wrong.fill(False)  # noqa: FBT003  # numpy's own signature

    def verify(self) -> None:
        """Look at the answers; waits for the device where there are any.

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
