"""The command: carries out both runs and prints the screen."""

import argparse
import shutil
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table as Columns

from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.logs import configure_logging
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.report import RunReport
from walle_stream.app.resources import find_definition
from walle_stream.cli.demo.page import write_page
from walle_stream.cli.demo.runs import (
    CLICK_STREAM,
    PAPER_CLOUD_MS,
    PAPER_DEVICE_MS,
    PEOPLE,
    DemoFigures,
    figures_of,
)
from walle_stream.cli.demo.words import Table, journey, sizes, small_rows, time_text, views
from walle_stream.cli.render import ResultConsole
from walle_stream.cli.run import begin_anew, carry_out, say
from walle_stream.cli.sizes import size_text

FOLDER: Final = Path("walle-data") / "demo"
_BAR: Final = 40  # characters
_STOPPED_EXIT: Final = 130


def demo(options: argparse.Namespace) -> int:
    """Run a click stream and a sample of real people, and show their figures and features."""
    configure_logging("text", "error")
    reports = []
    for name, overrides in (CLICK_STREAM, PEOPLE):
        report = _run(name, overrides, options)
        if report.stopped_by != "end":
            say("the demo was stopped before its end: it has nothing to show")
            return _STOPPED_EXIT
        reports.append(report)
    figures = figures_of(*reports)
    page = FOLDER / "index.html"
    write_page(page, figures)
    if options.json:
        print(msgspec.json.encode(figures).decode())
    else:
        _show(figures, page)
    return 0


def _run(name: str, overrides: tuple[str, ...], options: argparse.Namespace) -> RunReport:
    data_dir = FOLDER / name
    shutil.rmtree(data_dir, ignore_errors=True)  # of an earlier demo
    if not options.json:
        say(f"{name}: {_TOLD[name]}")
    assembly = Assembly.load(find_definition(name), list(overrides))
    run = LocalRun(assembly, RunOptions(data_dir, 1, None, is_measured=True, on_stuck=begin_anew))
    return carry_out(run, assembly, options)


_TOLD: Final = {
    "shop": "a click stream of 3,000 events a second, for eleven seconds",
    "ipv": "212 real people who watched short videos (KuaiRand)",
}


def _show(f: DemoFigures, page: Path) -> None:
    console = ResultConsole(highlight=False)
    show = console.print
    show(
        f"\n[bold]{f.features:,} features from {f.events:,} events at {f.devices:,} devices[/bold] "
        "of a simulated shop\n"
    )
    for name, size in sizes(f):
        less = f" [bold]{f.saving:.1%} less than compressed events[/bold]"
        shown = _bar(size / f.event_bytes) + less * (size == f.sent_bytes)
        show(f"  {name:<17}{size_text(size):>10}  {shown}")
    show("\n  from the end of a page to its feature")
    show(f"  here             {time_text(f.device_ms):>10}  median of this run, in one process")
    show(
        f"  Walle's paper    {time_text(PAPER_DEVICE_MS):>10}  mean on its devices; "
        f"{time_text(PAPER_CLOUD_MS)} by its cloud\n"
    )
    events = f"of about {f.page_events:.0f} events each"
    show(f"[bold]Three views of an item's page[/bold], {events}")
    show(_table(views(f)))
    show(f"[bold]One session of a real user[/bold] ({f.person} of KuaiRand), a feature per line")
    show(_table(journey(f)))
    show(f"{small_rows(f)}\n")
    show(f"as a page:    {page}")
    show(f"all features: walle features list --data-dir {FOLDER / 'shop'}")


def _bar(share: float) -> str:
    return "█" * int(share * _BAR) or "▏"


def _table(table: Table) -> Columns:
    heads, rows = table
    shown = Columns(*heads, box=None, pad_edge=True, header_style="dim", padding=(0, 2, 0, 1))
    for row in rows:
        shown.add_row(*row)
    return shown
