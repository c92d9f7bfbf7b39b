"""How many operators there are of each kind, and what the raster saves (Walle 2022)."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from walle_stream.engine.lowering.registry import INNER_DOMAIN, Kind, rules
from walle_stream.engine.operators import ATOMIC

BACKENDS_OF_WALLE: Final = 16
"""Backends of MNN that the paper counts the work for."""


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """Of a closed set of operators."""

    atomic: int
    """Operators of a program beside the raster: what a backend provides."""
    onnx: dict[str, int]
    """Operators of models, by kind."""
    backends: int
    before: int
    """Kernels for so many backends where each provides every operator."""
    after: int
    """With geometric computing: atomic operators and one raster each, and a rule once."""
    saved: float
    """1 - after / before."""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator of models."""

    name: str
    domain: str
    kind: str


def operator_counts(backends: int = BACKENDS_OF_WALLE) -> OperatorCounts:
    """Count.

    Args:
        backends: For how many the work is reckoned.

    Returns:
        The counts.
    """
    kinds = Counter(each.kind for each in operator_rows())
    transforms, composites = kinds[Kind.TRANSFORM], kinds[Kind.COMPOSITE]
    control = kinds[Kind.CONTROL]
    atomic = len(ATOMIC)
    before = (atomic + transforms + composites) * backends + control
    after = (atomic + 1) * backends + transforms + composites + control
    onnx = {str(kind): kinds[kind] for kind in Kind}
    return OperatorCounts(atomic, onnx, backends, before, after, 1 - after / before)


def operator_rows() -> list[OperatorRow]:
    """List the operators of models.

    Returns:
        By kind, domain and name; what only rules use is not among them.
    """
    order = list(Kind)
    found = [each for each in rules().values() if each.domain != INNER_DOMAIN]
    found.sort(key=lambda each: (order.index(each.kind), each.domain, each.operator))
    return [OperatorRow(each.operator, each.domain, str(each.kind)) for each in found]
