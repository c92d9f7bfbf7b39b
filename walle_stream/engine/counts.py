"""What geometric computing saves, counted: the operators that there are, and the work of backends.

Walle 2022: without it every backend needs a kernel of every operator; with it a
kernel of each atomic operator and one raster, while a transform or a composite is
lowered once for all of them.
"""

from dataclasses import dataclass
from typing import Final

from walle_stream.engine.lowering.registry import INNER_DOMAIN, Kind, Rule, rules
from walle_stream.engine.operators import ATOMIC, HOST


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """Of an engine's operators, by what they are; the names are the paper's."""

    aop: int
    """Atomic: what a backend provides beside the raster."""
    top: int
    """Transforms: rasters alone."""
    cop: int
    """Composites: rasters and atomics."""
    fop: int
    """Control flow: runs graphs, the same for every backend."""

    def before(self, backends: int) -> int:
        """Count the work without it: ``(N_aop + N_top + N_cop) * N_ba + N_fop``."""
        return (self.aop + self.top + self.cop) * backends + self.fop

    def after(self, backends: int) -> int:
        """Count it with: ``(N_aop + 1) * N_ba + N_top + N_cop + N_fop``, where 1 is the raster."""
        return (self.aop + 1) * backends + self.top + self.cop + self.fop

    def saved(self, backends: int) -> float:
        """Say which part of the work is saved, at most 1; below 0 where it costs more."""
        return 1 - self.after(backends) / self.before(backends)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An operator of ONNX that the engine runs."""

    name: str
    domain: str
    """Empty for ONNX's own."""
    kind: Kind
    module: str
    """Of ``engine.lowering``, where its rule is."""


PAPER_COUNTS: Final = OperatorCounts(aop=61, top=45, cop=16, fop=2)
"""MNN's, which the paper counts."""

PAPER_BACKENDS: Final = 16
"""N_ba of the paper."""


def operator_counts() -> OperatorCounts:
    """Count this engine's atomic operators, and ONNX's by kind.

    Operators on strings count for no backend: the host runs them for all. Nor do sequences and
    optionals, of which nothing is left in a program, and operators of ONNX that are one atomic.
    """
    kinds = [rule.kind for rule in _published()]
    return OperatorCounts(
        aop=len(ATOMIC - HOST),
        top=kinds.count(Kind.TRANSFORM),
        cop=kinds.count(Kind.COMPOSITE),
        fop=kinds.count(Kind.CONTROL),
    )


def operator_rows() -> list[OperatorRow]:
    """List the operators of ONNX that have a rule, by domain and name."""
    result = [
        OperatorRow(rule.operator, rule.domain, rule.kind, rule.lower.__module__.rpartition(".")[2])
        for rule in _published()
    ]
    return sorted(result, key=lambda row: (row.domain, row.name))


def _published() -> list[Rule]:
    # stages of operators are parts of their rules, no operators of anybody
    return [rule for rule in rules().values() if rule.domain != INNER_DOMAIN]
