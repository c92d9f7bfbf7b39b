"""The figures as one HTML file that needs nothing else: bars, times, and a person's journey."""

from collections.abc import Sequence
from html import escape
from math import log10
from pathlib import Path
from typing import Final

from walle_stream.app.demo.runs import DemoFigures, Row
from walle_stream.store.files import put_file

_TIMES_MS: Final = (1.0, 100_000.0)
"""Both ends of the scale of times, which is logarithmic."""

_HEAD: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>walle_stream: the first minute</title>
<style>
:root { --ink: #1c2430; --soft: #5c6878; --line: #d9dfe7; --back: #ffffff; --ours: #0b7a75; --cloud: #c8553d }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8edf3; --soft: #9aa7b6; --line: #313c49; --back: #141a21; --ours: #35b5ac; --cloud: #ef8a70 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 46rem; margin: 3rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; line-height: 1.25 } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
p.note { color: var(--soft); margin: .4rem 0 }
.bar { display: grid; grid-template-columns: 9rem 1fr 6.5rem; gap: .8rem; align-items: center; margin: .35rem 0 }
.bar i { display: block; height: 1.1rem; border-radius: .2rem; min-width: 2px }
.bar b { text-align: right; font-variant-numeric: tabular-nums }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500 }
</style>
"""


def write_page(path: Path, figures: DemoFigures) -> None:
    """Write the page; blocks on the disk. Its folder exists.

    Raises:
        OSError: The disk refuses.
    """
    put_file(path, "".join(_parts(figures)).encode())


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


VIEW_HEADS: Final = ("item", "from", "stayed", "events", "scrolled", "clicks", "did")
JOURNEY_HEADS: Final = ("minute", "video", "watched", "clicked")


def _parts(f: DemoFigures) -> list[str]:
    median, _ = f.device_ms
    paper_device, paper_cloud = f.paper_ms
    times = (
        ("at the device", median, "--ours"),
        ("Walle, device", paper_device, "--ours"),
        ("Walle, cloud's way", paper_cloud, "--cloud"),
    )
    began_ms = f.journey[0]["enter_time_ms"] if f.journey else 0
    return [
        _HEAD,
        f"<h1>{f.features:,} features from {f.events:,} events at {f.devices:,} devices: "
        f"{f.saving:.1%} of the bytes stay there</h1>",
        "<p class=note>A simulated shop, 1.1 kB an event. One feature for each view of an item's "
        f"page, made when the page is left; a page has {f.page_events:.0f} events.</p>",
        "<h2>Bytes</h2>",
        _bar("at the devices", 1.0, size_text(f.event_bytes), "--cloud"),
        _bar("sent", f.sent_bytes / max(f.event_bytes, 1), size_text(f.sent_bytes), "--ours"),
        "<h2>From a page's end to its feature</h2>",
        *(_bar(name, _place(ms), time_text(ms), color) for name, ms, color in times),
        "<p class=note>A logarithmic scale. The first bar is the median of this run; the others are "
        "the means that the authors of Walle give for the same kind of feature (OSDI 2022).</p>",
        "<h2>Three views, as features</h2>",
        _table(VIEW_HEADS, [view_cells(row) for row in f.shown]),
        f"<h2>One session of a real person ({escape(f.person)} of KuaiRand), as features</h2>",
        _table(JOURNEY_HEADS, [journey_cells(row, began_ms) for row in f.journey]),
        f"<p class=note>A row of this data set has {f.row_bytes:.0f} bytes and stands for a whole "
        f"view. Its feature takes {f.feature_bytes:.0f}. So nothing is saved here: features save "
        "bytes where a page has many events.</p>",
    ]


def _bar(name: str, share: float, value: str, color: str) -> str:
    width = max(min(share, 1.0), 0.0) * 100.0
    return (
        f'<div class=bar><span>{escape(name)}</span><i style="width:{width:.2f}%;'
        f'background:var({color})"></i><b>{escape(value)}</b></div>\n'
    )


def _place(ms: float) -> float:
    least, most = map(log10, _TIMES_MS)
    return (log10(max(ms, _TIMES_MS[0])) - least) / (most - least)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}" for each in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) + "\n" for row in rows
    )
    return f"<table><tr>{head}\n{body}</table>\n"
