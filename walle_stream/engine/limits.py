"""Bounds on a run of a model, and the budget that a run has used.

A model may be any program: a loop that never ends, functions that each call two others, shapes
that multiply. None of these is wrong in itself, so they are bounded. A caller that needs more
passes larger ``Limits``.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Step
from walle_stream.errors import EngineError

_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")

_SORT_WORK: Final = 16
"""Work per sorted element: about the logarithm of a usual length."""


@cache
def memory_of_machine() -> int:
    """Return the bytes of memory of the machine, or of the container of this process."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        text = _CGROUP.read_text(encoding="ascii").strip()
    except OSError:
        return most
    return min(most, int(text)) if text.isdecimal() else most


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on a run; a run that exceeds one ends with an ``EngineError`` that names the bound."""

    iterations: int = 1 << 24
    """Inner graphs that one run may run: iterations of all loops, and branches."""
    nodes: int = 1 << 20
    """Nodes of a graph after its functions are inlined."""
    steps: int = 1 << 20
    """Steps of a lowered piece of a graph."""
    work: int = 1 << 46
    """Elements that one run may read, write, or multiply and add."""
    nbytes: int = field(default_factory=memory_of_machine)
    """Bytes of one plan's memory, of its constants, and of the rows that loops collect."""
    seconds: float | None = None
    """Time of one run, checked between nodes and between iterations; a step is not interrupted."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            EngineError: A bound has the wrong type, or is negative.
        """
        for name in ("iterations", "nodes", "steps", "work", "nbytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise EngineError(f"Limits.{name} is a whole number, not {value!r}")
        seconds = self.seconds
        if seconds is not None and (type(seconds) not in {int, float} or not seconds >= 0):
            raise EngineError(f"Limits.seconds is a number or None, not {seconds!r}")


class Budget:
    """The part of its limits that one run has used. For one thread."""

    __slots__ = ("_deadline", "_iterations", "_nbytes", "_work", "limits")

    def __init__(self, limits: Limits) -> None:
        """Start the clock, with nothing used."""
        self.limits = limits
        self._iterations = self._work = self._nbytes = 0
        self._deadline = None if limits.seconds is None else time.monotonic() + limits.seconds

    def iterate(self) -> None:
        """Count a run of an inner graph.

        Raises:
            EngineError: There are too many runs, or the time is over.
        """
        self._iterations += 1
        if self._iterations > self.limits.iterations:
            raise EngineError(
                f"more than {self.limits.iterations} iterations in one run: does a loop's"
                " condition end? (Limits.iterations)"
            )
        self.check_time()

    def spend(self, work: int) -> None:
        """Count the elements of work that is about to be done.

        Raises:
            EngineError: There is too much work, or the time is over.
        """
        self._work += work
        if self._work > self.limits.work:
            raise EngineError(
                f"more than {self.limits.work} elements to compute in one run (Limits.work)"
            )
        self.check_time()

    def keep(self, nbytes: int) -> None:
        """Count bytes that stay until the run ends.

        Raises:
            EngineError: There are too many bytes.
        """
        self._nbytes += nbytes
        check_memory(self._nbytes, self.limits)

    def check_time(self) -> None:
        """Compare the clock with the deadline.

        Raises:
            EngineError: The time is over.
        """
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise EngineError(f"it takes longer than {self.limits.seconds} s (Limits.seconds)")


def check_memory(nbytes: int, limits: Limits) -> None:
    """Refuse too much memory before it is allocated.

    Raises:
        EngineError: The number of bytes exceeds the limit.
    """
    if nbytes > limits.nbytes:
        raise EngineError(f"it takes {nbytes} bytes, more than {limits.nbytes} (Limits.nbytes)")


@contextmanager
def guarded(name: str) -> Iterator[None]:
    """Guard a block that lowers or runs a graph; numpy's warnings are off.

    Raises:
        EngineError: There is not enough memory.
    """
    try:
        # rules compute with attributes, which may have any value
        with np.errstate(all="ignore"):
            yield
    except MemoryError as error:
        raise EngineError(f"graph {name!r}: there is not enough memory: {error}") from error


def work_of(step: Step) -> int:
    """Count the elements that a step reads, writes, or multiplies and adds.

    An output of unknown shape counts as 0.
    """
    size = step.output.size if step.output.has_shape else 0
    if step.operator is Operator.MATMUL:
        return size * step.inputs[0].shape[-1]
    if step.operator is Operator.RASTER:
        return size + sum(prod(region.size) for region in step.regions)
    read = sum(tensor.size for tensor in step.inputs if tensor.has_shape)
    return size + read * (_SORT_WORK if step.operator is Operator.ARGSORT else 1)
