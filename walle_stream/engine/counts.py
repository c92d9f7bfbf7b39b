"""Counts of operators, and of the kernels that geometric computing saves.

Walle 2022: without geometric computing every backend needs a kernel of every operator. With it, a
backend needs a kernel of each atomic operator and one raster. A transform or a composite is
lowered once for all backends.
"""

from dataclasses import dataclass
from typing import Final

from walle_stream.engine.lowering.registry import INNER_DOMAIN, Kind, Rule, rules
from walle_stream.engine.operators import ATOMIC, HOST


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """Number of an engine's operators of each kind; the names are the paper's."""

    aop: int
    """Atomic: a backend provides these and the raster."""
    top: int
    """Transforms: only rasters."""
    cop: int
    """Composites: rasters and atomics."""
    fop: int
    """Control flow: runs graphs, in the same way for every backend."""

    def before(self, backends: int) -> int:
        """Return the work without it: ``(N_aop + N_top + N_cop) * N_ba + N_fop``."""
        return (self.aop + self.top + self.cop) * backends + self.fop

    def after(self, backends: int) -> int:
        """Return the work with it: ``(N_aop + 1) * N_ba + N_top + N_cop + N_fop`` (1: raster)."""
        return (self.aop + 1) * backends + self.top + self.cop + self.fop

    def saved(self, backends: int) -> float:
        """Return the saved fraction of the work, at most 1; it is negative if the work grows."""
        return 1 - self.after(backends) / self.before(backends)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An operator of ONNX that the engine runs."""

    name: str
    domain: str
    """Empty for ONNX's own domain."""
    kind: Kind
    module: str
    """The module of ``engine.lowering`` that has the rule."""


PAPER_COUNTS: Final = OperatorCounts(aop=61, top=45, cop=16, fop=2)
"""Counts of MNN in the paper."""

PAPER_BACKENDS: Final = 16
"""Number of backends (N_ba) in the paper."""


def operator_counts() -> OperatorCounts:
    """Count this engine's atomic operators, and ONNX's by kind.

    Operators on strings do not count: the host runs them for all backends. Neither do sequences and
    optionals, which disappear from a program, nor operators of ONNX that are a single atomic.
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
    # stages of operators are parts of rules, not operators of a model
    return [rule for rule in rules().values() if rule.domain != INNER_DOMAIN]
