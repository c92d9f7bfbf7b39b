"""What a bench leaves: tables for a person at a terminal, JSON for the report."""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from vm_parts.measuring import say
from vm_parts.tables import Table


def show(tables: Iterable[Table]) -> None:
    """Print tables on stdout."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    for table in tables:
        shown = RichTable(title=table.title, title_justify="left", caption=table.note or None)
        shown.caption_justify = "left"
        for number, name in enumerate(table.head):
            shown.add_column(name, justify="left" if number == 0 else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        console.print()


def surroundings(load_before: float) -> dict[str, Any]:
    """Return what a result says of where and when it was measured."""
    return {
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "load_before_and_after": [round(each, 2) for each in (load_before, os.getloadavg()[0])],
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("walle-stream", "msgspec", "rocksdict")},
        },
        "date": time.strftime("%Y-%m-%d"),
    }


def keep(result: Mapping[str, Any], path: Path | None, why_not: str) -> None:
    """Write a result as JSON.

    Args:
        result: What was measured.
        path: Where; None to write nothing.
        why_not: The message if nothing is written.
    """
    if path is None:
        say(f"not written: {why_not}; --json FILE writes it")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
