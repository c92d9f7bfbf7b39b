"""Bars, the table and the plot of a long run's memory: for the terminal and ``bench/results``."""

from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from vm_parts.plot import text_at
from vm_parts.tables import Table, bars_table

WHOLE: Final = 10_000_000
"""Events that the bar is about."""

_FIRST_SHARE: Final = 0.2
_WINDOW_SHARE: Final = 0.1
_GROWTH_MAX_PERCENT: Final = 5.0
_KINDS: Final = {
    "rss": "resident (RSS)",
    "pss": "PSS",
    "anonymous": "anonymous",
    "file": "mapped files",
    "rocksdb_write_buffers": "RocksDB: write buffers",
    "rocksdb_block_cache": "RocksDB: block cache",
    "rocksdb_tables": "RocksDB: open tables",
    "rest": "RSS without RocksDB's",
}
_CURVES: Final = {"rss": "#2563eb", "anonymous": "#0f766e", "rocksdb": "#b0b7c3"}

_WIDTH: Final = 760
_HEIGHT: Final = 300
_LEFT: Final = 60
_RIGHT: Final = 110
_TOP: Final = 46
_BOTTOM: Final = 40


def marks(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the memory at a fifth of the events and at the end, by name of its kind.

    Write buffers fill and are flushed, so a mark is the median of the samples of a tenth
    of all events before it; ``peak`` is the highest RSS of them.

    Returns:
        ``first`` and ``last``, MiB.
    """
    found = {}
    for name, share in (("first", _FIRST_SHARE), ("last", 1.0)):
        until = share * result["events"]
        since = until - _WINDOW_SHARE * result["events"]
        window = [each for each in result["samples"] if since < each["events"] <= until]
        kinds = {kind: round(median(each[f"{kind}_mib"] for each in window), 2) for kind in _KINDS}
        peak = max(each["rss_mib"] for each in window)
        blocks = median(each["python_blocks"] for each in window)
        found[name] = {**kinds, "peak": peak, "python_blocks": blocks}
    return found


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for.

    RSS includes RocksDB's write buffers, 32 MiB for each database. They fill for up to millions of
    events before a flush, so the part that a mark catches is random. The comparison is therefore
    repeated without the memory that RocksDB counts as its own.

    Args:
        result: With its ``marks``.

    Returns:
        For each bar ``name``, ``bar``, ``value``, ``met`` and ``note``.
    """
    # memory is the same on a busy machine, times are not
    note = "" if result["events"] >= WHOLE else "fewer events than the bar's"
    if result["settings"]["is_fresh"]:
        note = note or "the script's own state grows, too"
    since, until = _millions(result, _FIRST_SHARE), _millions(result, 1.0)
    found = []
    for kind, title in (("rss", "RSS"), ("rest", "RSS without RocksDB's own")):
        growth = round(_growth(result["marks"], kind), 2)
        found.append(
            {
                "name": f"growth of {title} from {since} to {until} events, %",
                "bar": f"<= {_GROWTH_MAX_PERCENT:g}",
                "value": growth,
                "met": growth <= _GROWTH_MAX_PERCENT and not note,
                "note": note,
            }
        )
    return found


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables."""
    yield bars_table(result["bars"])
    found, settings = result["marks"], result["settings"]
    first, last = found["first"], found["last"]
    rows = [
        (title, f"{first[kind]:,.1f}", f"{last[kind]:,.1f}", f"{_growth(found, kind):+.1f} %")
        for kind, title in {**_KINDS, "peak": "highest RSS"}.items()
    ]
    blocks = (f"{each['python_blocks']:,.0f}" for each in (first, last))
    growth = _growth(found, "python_blocks")
    rows.append(("blocks of Python's allocator", *blocks, f"{growth:+.1f} %"))
    at_first, at_last = (f"at {_millions(result, each)}" for each in (_FIRST_SHARE, 1.0))
    visits = "drawn anew each time" if settings["is_fresh"] else "the same ones, later each time"
    yield Table(
        f"Memory of one process over {result['events']:,} events, MiB",
        ("what", at_first, at_last, "growth"),
        rows,
        f"{settings['devices']:,} devices, their visits {visits}; {result['features']:,} features, "
        f"{result['disk_mib']:,.0f} MiB on disk, {result['cpu_s']:,.0f} s of CPU. Medians over a "
        "tenth of the events before each mark: write buffers fill and are flushed. The kernel's "
        "page cache is no part of a process's memory.",
    )


def figure(result: dict[str, Any]) -> str:
    """Draw the memory over the events.

    Returns:
        SVG text.
    """
    samples, events = result["samples"], result["events"]
    top_mib = max(each["rss_mib"] for each in samples) * 1.05

    def at(count: float, mib: float) -> str:
        x = _LEFT + count / events * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - mib / top_mib * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    drawn = []
    for share in (_FIRST_SHARE, 1.0):
        x = at(share * events, 0).partition(",")[0]
        drawn += [
            (
                f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{_HEIGHT - _BOTTOM}" stroke="#888" '
                'stroke-dasharray="4 3"/>'
            ),
            text_at(float(x), _HEIGHT - _BOTTOM + 18, _millions(result, share), "middle"),
        ]
    for kind, colour in _CURVES.items():
        points = " ".join(at(each["events"], each[f"{kind}_mib"]) for each in samples)
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        last = samples[-1][f"{kind}_mib"]
        y = float(at(events, last).partition(",")[2])
        title = {"rss": "RSS", "rocksdb": "RocksDB"}.get(kind, kind)
        drawn.append(text_at(_WIDTH - _RIGHT + 6, y + 4, f"{title} {last:,.0f}"))
    growth = _growth(result["marks"], "rss")
    head = (
        f"Memory of the simulated shop's job, MiB over events: RSS {growth:+.1f} % from "
        f"{_millions(result, _FIRST_SHARE)} to {_millions(result, 1.0)}"
    )
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    floor = _HEIGHT - _BOTTOM
    axis = f'<line x1="{_LEFT}" y1="{floor}" x2="{_WIDTH - _RIGHT}" y2="{floor}" stroke="#111"/>'
    top = text_at(_LEFT - 8, _TOP + 4, f"{top_mib:,.0f}", "end")
    zero = text_at(_LEFT - 8, floor + 4, "0", "end")
    return "\n".join([opened, ground, text_at(8, 22, head), axis, top, zero, *drawn, "</svg>", ""])


def _growth(found: dict[str, dict[str, float]], kind: str) -> float:
    before = found["first"][kind]
    return (found["last"][kind] / before - 1.0) * 100.0 if before else 0.0


def _millions(result: dict[str, Any], share: float) -> str:
    return f"{share * result['events'] / 1e6:g} M"
