"""Progress bar and tables of a run, for people."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import override

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from walle_stream.actors.runs import RETURNED
from walle_stream.app.figures.ledger import LedgerReport, Saving
from walle_stream.app.figures.task_figures import TaskFigures
from walle_stream.app.report import RunReport
from walle_stream.cli.sizes import size_text

console = Console(stderr=True, highlight=False)
"""Progress and messages go to stderr, results to stdout."""


class ResultConsole(Console):
    """Console on stdout, whose reader may close it (``walle run ... | head``)."""

    @override
    def on_broken_pipe(self) -> None:
        """Let ``main`` handle the error, instead of ending with status 1.

        Raises:
            BrokenPipeError: Always.
        """
        raise BrokenPipeError


@contextmanager
def run_progress() -> Iterator[Callable[[float, int], None]]:
    """Draw the progress bar of a run; stay silent when stderr is not a terminal.

    The bar is removed at the end. Yields a function that shows the share of the source that was
    read (below 0: unknown) and the number of events.
    """
    with Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[events]:,} events"),
        TimeElapsedColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as bar:
        shown = bar.add_task("reading", total=1.0, events=0)

        def update(ratio: float, events: int) -> None:
            bar.update(shown, completed=ratio if ratio >= 0 else None, events=events)

        yield update


@contextmanager
def count_progress(verb: str, noun: str) -> Iterator[Callable[[int], None]]:
    """Show a running count; stay silent when stderr is not a terminal.

    Yields a function that shows a number, as in ``sent 1,000 messages``.
    """
    is_quiet = sys.stderr is None or not sys.stderr.isatty()
    with console.status("", spinner="dots") if not is_quiet else nullcontext() as shown:
        yield lambda count: shown.update(f"{verb} {count:,} {noun}") if shown else None


def run_table(report: RunReport) -> Table:
    """Make the table at the end of a run."""
    counters = report.counters
    table = Table(title=f"pipeline {report.pipeline}", title_justify="left", show_header=False)
    table.add_column("what", style="bold")
    table.add_column("value", justify="right")
    table.add_column("note", style="dim")

    row = table.add_row
    row(
        "rows",
        f"{counters.source_rows:,}",
        f"{counters.accepted_rows:,} accepted, {counters.duplicate_rows:,} duplicate, "
        f"{counters.late_rows:,} late, {counters.dead_letter_rows:,} unreadable",
    )
    cloud = report.cloud
    row("devices", f"{counters.devices:,}", f"{cloud.devices:,} with a feature" if cloud else "")
    row("events", f"{counters.events:,}")
    row("pages", f"{counters.page_sequences:,}", f"{counters.timed_out_pages:,} timed out")
    row("tasks fired", f"{counters.task_runs:,}", f"{counters.task_failures:,} failed")
    there = f"{cloud.features:,} in the cloud" if cloud else "sent to the tunnel"
    row("features", f"{counters.features:,}", there)
    if counters.calls:
        row("calls", f"{counters.calls:,}", f"{counters.replies:,} answered")
    row("raw bytes", size_text(counters.raw_bytes))
    row("feature bytes", size_text(counters.feature_bytes), _saving(counters.feature_bytes, report))
    row("encoded bytes", size_text(counters.encoded_bytes), _saving(counters.encoded_bytes, report))
    row("sent up", size_text(counters.uplink_bytes), _saving(counters.uplink_bytes, report))
    latency = report.exit_to_commit_ms
    row("exit to commit", f"{_ms(latency.p50)} / {_ms(latency.p99)}", "p50 / p99 of this run")
    row(
        "events per CPU second",
        f"{report.events_per_cpu_second:,.0f}",
        f"{report.run_events:,} events, {report.cpu_s:.2f} s CPU, {report.wall_s:.2f} s",
    )
    return table


def task_table(tasks: Sequence[TaskFigures]) -> Table:
    """Make the table of the results of each task's runs."""
    table = Table(title="runs, by task", title_justify="left")
    table.add_column("task", style="bold", overflow="fold")
    for name in ("runs", "failed", "features"):
        table.add_column(name, justify="right")
    is_noted = any(task.returned for task in tasks)
    if is_noted:
        table.add_column("note")
    for task in tasks:
        note = f"{task.returned:,} {RETURNED}" if task.returned else ""
        figures = (f"{task.runs:,}", f"{task.failures:,}", f"{task.features:,}")
        table.add_row(task.task, *figures, *([note] if is_noted else []))
    return table


def ledger_table(report: LedgerReport) -> Table:
    """Make the table of the bytes that each task sent, and of the raw rows behind them."""
    table = Table(title="bytes up, by task", title_justify="left", caption_justify="left")
    table.caption = _ledger_note(report)
    table.add_column("task", style="bold", overflow="fold")
    for name in ("count", "bytes", "each", "below raw", "below zstd"):
        table.add_column(name, justify="right")

    def row(name: str, count: int, size_bytes: int, saving: Saving | None = None) -> None:
        mean = f"{size_bytes / count:,.0f} B" if count else ""
        against = ("", "") if saving is None else (_below(saving.raw), _below(saving.packed_raw))
        table.add_row(name, f"{count:,}" if count else "", size_text(size_bytes), mean, *against)

    for task in report.tasks:
        size = task.bytes
        row(task.task, size.features + size.calls, size.sent_bytes, task.sent)
        if report.measured_rows:
            row("  features alone", size.features, size.feature_alone_bytes, task.feature_alone)
            row("  encodings alone", size.features, size.encoding_alone_bytes, task.encoding_alone)
    if report.unassigned_bytes:
        row("(no ledger yet)", 0, report.unassigned_bytes)
    table.add_section()
    row("raw rows", report.source_rows, report.raw_bytes)
    if report.measured_rows:
        row("  as zstd frames", report.measured_rows, report.packed_raw_bytes)
    return table


def _ledger_note(report: LedgerReport) -> str | None:
    sent, count = report.uplink_bytes, sum(task.bytes.features for task in report.tasks)
    rows = report.source_rows  # zero if all features came from messages
    if count and rows and sent > report.raw_bytes:
        # a percentage alone would suggest that features are always larger than raw events
        return (
            f"nothing is saved here: a raw row of {report.raw_bytes / rows:,.0f} bytes makes "
            f"{count / rows:,.1f} features of {sent / count:,.0f} bytes. Raw events of an app have "
            "about 1,000 bytes: see walle run shop"
        )
    if not report.measured_rows:
        return "compare with compressed raw rows: walle run --ledger"
    if report.measured_rows < report.source_rows:
        return f"measured on {report.measured_rows:,} of {report.source_rows:,} rows"
    return None


def _below(below: float | None) -> str:
    if below is None:
        return ""
    return f"{below:.2%}" if below >= 0 else f"{-below:.0%} above"


def _saving(size_bytes: int, report: RunReport) -> str:
    raw = report.counters.raw_bytes
    if not raw or not size_bytes:
        return ""
    if size_bytes <= raw:
        return f"{1 - size_bytes / raw:.1%} below raw"
    return f"{size_bytes / raw:.1f} times raw: these rows are smaller than a feature"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f} ms"
