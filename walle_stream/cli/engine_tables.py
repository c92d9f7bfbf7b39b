"""Tables about the tensor engine, for people."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from walle_stream.engine.counts import PAPER_BACKENDS, PAPER_COUNTS, OperatorCounts, OperatorRow
from walle_stream.engine.profiling import Profile, Timing

_STAGE_NOTES: Final = {
    "lowered": "as made by the rules",
    "merged": "after the passes",
    "planned": "as run",
}


def operator_table(profile: Profile) -> Table:
    """Make the table of time by ONNX operator."""
    table = _timings(
        f"{escape(profile.model or 'model')}: {profile.mean_ms:,.3f} ms a run, median"
        f" {profile.median_ms:,.3f}, backend {profile.backend}, {profile.repeats} runs;"
        f" the first took {profile.planning_ms:,.1f} ms",
        "operator",
    )
    table.add_column("nodes", justify="right")
    nodes = Counter(node.operator for node in profile.nodes)
    for timing in profile.operators():
        table.add_row(*_cells(timing), f"{nodes[timing.name]:,}")
    other = profile.other
    table.add_row("(other)", f"{other.ms:,.3f}", f"{other.share:.1%}", "", "", "", style="dim")
    return table


def kernel_table(profile: Profile) -> Table:
    """Make the table of time by atomic operator and raster."""
    table = _timings("by kernel", "atomic or raster")
    for timing in profile.kernels():
        table.add_row(*_cells(timing))
    return table


def node_table(profile: Profile, most: int) -> Table:
    """Make the table of the longest nodes."""
    table = _timings(
        f"the longest {min(most, len(profile.nodes))} of {len(profile.nodes)} nodes", "node"
    )
    table.add_column("steps", overflow="fold")
    for node in profile.nodes[:most]:
        steps = ", ".join(f"{step.name} {step.ms:,.3f}" for step in node.steps)
        name, *rest = _cells(node.total)
        table.add_row(f"{name} {escape(node.name)}", *rest, steps)
    return table


def stage_table(profile: Profile) -> Table:
    """Make the table of the savings of the passes."""
    table = Table(title="before and after merging", title_justify="left")
    table.add_column("program", style="bold")
    for name in ("steps", "rasters", "bytes moved", "peak memory"):
        table.add_column(name, justify="right")
    table.add_column("", style="dim")
    for name, stage in profile.stages.items():
        table.add_row(
            name, f"{stage.steps:,}", f"{stage.rasters:,}", _megabytes(stage.moved_bytes),
            _megabytes(stage.peak_bytes), _STAGE_NOTES[name],
        )  # fmt: skip
    return table


def count_table(counts: OperatorCounts, rows: Sequence[OperatorRow]) -> Table:
    """Make the table of operators by kind, and of the work that the raster saves."""
    table = Table(title="operators", title_justify="left")
    table.add_column("", style="bold")
    for name in ("here", "in the paper"):
        table.add_column(name, justify="right")
    table.add_column("", style="dim")
    paper = PAPER_COUNTS
    for name, mine, theirs, note in (
        ("atomic", counts.aop, paper.aop, "kernels of a backend, and one raster"),
        ("transform", counts.top, paper.top, "of ONNX, become rasters alone"),
        ("composite", counts.cop, paper.cop, "of ONNX, become rasters and atomics"),
        ("control flow", counts.fop, paper.fop, "of ONNX, run graphs"),
    ):
        table.add_row(name, f"{mine:,}", f"{theirs:,}", note)
    table.add_section()
    backends = PAPER_BACKENDS
    for name, mine, theirs, note in (
        ("work before", counts.before(backends), paper.before(backends), "every kernel in each"),
        ("work after", counts.after(backends), paper.after(backends), "rules are written once"),
    ):
        table.add_row(name, f"{mine:,}", f"{theirs:,}", f"{backends} backends, {note}")
    table.add_row("saved", f"{counts.saved(backends):.1%}", f"{paper.saved(backends):.1%}", "")
    table.caption = f"{len(rows)} operators of ONNX, of all kinds"
    return table


def _timings(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, style="bold", overflow="fold")
    for name in ("ms", "share", "calls", "read + written"):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cells(timing: Timing) -> Iterable[str]:
    return (
        escape(timing.name),
        f"{timing.ms:,.3f}",
        f"{timing.share:.1%}",
        f"{timing.calls:,.0f}",
        _megabytes(timing.bytes),
    )


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.2f} MB"
