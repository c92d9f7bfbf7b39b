"""Figures and features as text, for the screen and for the page."""

from typing import Final

from walle_stream.cli.demo.runs import DemoFigures

_ACTS: Final = {"is_favourite": "favourite", "is_in_cart": "cart", "is_bought": "bought"}
_SECOND_MS: Final = 1_000.0

type Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Headings of the columns, and the rows."""


def time_text(ms: float) -> str:
    """Return a readable time: ``4.4 ms``, ``33.7 s``."""
    return f"{ms / _SECOND_MS:,.1f} s" if ms >= _SECOND_MS else f"{ms:.3g} ms"


def sizes(f: DemoFigures) -> tuple[tuple[str, int], ...]:
    """Return the names and bytes of the compared sizes."""
    return (
        ("events", f.event_bytes),
        ("compressed events", f.packed_bytes),
        ("sent features", f.sent_bytes),
    )


def views(f: DemoFigures) -> Table:
    """Return the table of page views in the shop: item, origin, duration and actions."""
    heads = ("item", "from", "stayed", "events", "scrolled", "did")
    return heads, [
        (
            row["item_id"],
            row["entry"],
            f"{row['dwell_ms'] / _SECOND_MS:.0f} s",
            f"{row['event_count']}",
            f"{row['scroll_depth']:.0%}",
            ", ".join(word for key, word in _ACTS.items() if row[key]) or "looked",
        )
        for row in f.shown
    ]


def journey(f: DemoFigures) -> Table:
    """Return the table of video views in one session, each with the time since its start."""
    began_ms = f.journey[0]["enter_time_ms"] if f.journey else 0
    rows: list[tuple[str, ...]] = []
    for row in f.journey:
        minutes, seconds = divmod((row["enter_time_ms"] - began_ms) // 1000, 60)
        watched = f"{min(row['play_ratio'], 1.0):.0%}"
        clicked = ", ".join(sorted(row["clicks"])) or "\N{EN DASH}"
        rows.append((f"{minutes}:{seconds:02}", row["item_id"], watched, clicked))
    return ("minute", "video", "watched", "clicked"), rows


def small_rows(f: DemoFigures) -> str:
    """Return a note that explains why the sample of real people saves no bytes."""
    return (
        f"A row of this data set has {f.row_bytes:.0f} bytes and stands for a whole view. Its "
        f"feature takes {f.feature_bytes:.0f}. So nothing is saved here: features save bytes where "
        "a page has many events."
    )
