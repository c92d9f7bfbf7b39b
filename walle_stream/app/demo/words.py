"""What the figures and features are called for people, on the screen and on the page."""

from typing import Final

from walle_stream.app.demo.runs import DemoFigures, Row

VIEW_HEADS: Final = ("item", "from", "stayed", "events", "scrolled", "clicks", "did")
JOURNEY_HEADS: Final = ("minute", "video", "watched", "clicked")


def size_text(size: float) -> str:
    """Return a number of bytes for people: ``1,110 B``, ``35.0 MB``."""
    for unit, least in (("MB", 1e6), ("kB", 1e4)):
        if size >= least:
            return f"{size / (1e6 if unit == 'MB' else 1e3):,.1f} {unit}"
    return f"{size:,.0f} B"


def time_text(ms: float) -> str:
    """Return a time for people: ``4.4 ms``, ``33.7 s``."""
    return f"{ms / 1000:,.1f} s" if ms >= 1_000.0 else f"{ms:.3g} ms"  # noqa: PLR2004 - a second


def view_cells(row: Row) -> tuple[str, ...]:
    """Return what a view of the shop was: item, from where, how long, and what was done."""
    done = [
        word for key, word in (("is_favourite", "favourite"), ("is_in_cart", "cart"),
                               ("is_bought", "bought")) if row[key]
    ]  # fmt: skip
    clicks = len(row["clicks"])
    return (
        row["item_id"],
        row["entry"],
        f"{row['dwell_ms'] / 1000:.0f} s",
        f"{row['event_count']}",
        f"{row['scroll_depth']:.0%}",
        f"{clicks}",
        ", ".join(done) or "looked",
    )


def journey_cells(row: Row, began_ms: int) -> tuple[str, ...]:
    """Return what a view of a video was, since the session's beginning."""
    minutes, seconds = divmod((row["enter_time_ms"] - began_ms) // 1000, 60)
    clicks = ", ".join(sorted(row["clicks"])) or "\N{EN DASH}"
    watched = min(row["play_ratio"], 1.0)
    return f"{minutes}:{seconds:02}", row["item_id"], f"{watched:.0%}", clicks


def small_rows(f: DemoFigures) -> str:
    """Say why the sample of real people saves nothing."""
    return (
        f"A row of this data set has {f.row_bytes:.0f} bytes and stands for a whole view. Its "
        f"feature takes {f.feature_bytes:.0f}. So nothing is saved here: features save bytes where "
        "a page has many events."
    )
