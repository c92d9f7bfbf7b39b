"""Tables of a bench for a person at a terminal."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table as RichTable
from vm_parts.tables import Table


def show(tables: Iterable[Table]) -> None:
    """Print tables on stdout.

    Args:
        tables: What was measured.
    """
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
