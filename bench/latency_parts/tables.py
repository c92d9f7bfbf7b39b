"""Bars, tables and the plot of the latencies: for the terminal and ``bench/results``."""

from collections.abc import Iterator
from math import log10
from statistics import median
from typing import Any, Final

from vm_parts.plot import text_at
from vm_parts.tables import Table, bars_table

from latency_parts.quiet import is_quiet

BAR_SHARE: Final = "0.5"
"""Share of the maximum rate that the bars are about."""

_LATENCY_MAX_MS: Final = 20.0
_GAP_MAX_MS: Final = 25.0
_BACKLOG_MAX_MS: Final = 250.0

_WIDTH: Final = 760
_LEFT: Final = 190
_RIGHT: Final = 150
_TOP: Final = 62
_ROW: Final = 34
_WALL: Final = "#2563eb"
_CPU: Final = "#b0b7c3"
_LEAST_MS: Final = 0.5


def bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare with what was asked for.

    Returns:
        For each bar ``name``, ``bar``, ``value``, ``met`` and ``note``.
    """
    if BAR_SHARE not in result["shares"]:
        return []
    found = _counting(result, BAR_SHARE)
    wall, cpu, gap, largest = (
        median(each[clock][name] for each in found)
        for clock, name in (
            ("wall_ms", "p99"),
            ("cpu_ms", "p99"),
            ("commit_gap_ms", "p99"),
            ("commit_gap_ms", "max"),
        )
    )
    note = _why_open(result, found)
    of = "page exit to commit at half of the maximum rate, ms (p99)"
    gaps = "between two commits of a partition at that rate, ms"
    rows = (
        (f"{of}, wall clock", _LATENCY_MAX_MS, wall, note),
        (f"{of}, CPU clock", _LATENCY_MAX_MS, cpu, "a quick look" if result["quick"] else ""),
        (f"{gaps} (p99)", _GAP_MAX_MS, gap, note),
        (f"{gaps} (largest)", _GAP_MAX_MS, largest, note),
    )
    return [
        {
            "name": name,
            "bar": f"< {bar:g}",
            "value": round(value, 3),
            "met": value < bar and not why,
            "note": why,
        }
        for name, bar, value, why in rows
    ]


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables."""
    if result["bars"]:
        yield bars_table(result["bars"])
    rounds = result["rounds"]
    fastest = [each["fastest"]["events_per_s"] for each in rounds]
    rows, quiet, counted = [], [], []
    for share in result["shares"]:
        found = _counting(result, share)
        counted.append(f"{len(found)} at {float(share):.0%}")
        rows.append(_row(share, found))
        quiet.append((f"{float(share):.0%}", *_quiet(found)))
    head = (
        "of the maximum",
        "events/s",
        "wall, p50 / p99 / p99.9",
        "CPU clock, the same",
        "run's own p99",
        "gap p99, largest",
        "exits",
    )
    yield Table(
        f"Page exit to commit, ms; at most {median(fastest):,.0f} events a second",
        head,
        rows,
        f"Medians of the rounds with a quiet core ({', '.join(counted)}, of {len(rounds)}), each "
        f"with its own maximum ({min(fastest):,.0f} to {max(fastest):,.0f}). An exit arrives by a "
        "fixed schedule, ready or not; its wait for the order bound (2 s of the shop's time, which "
        "runs faster here) is in it. The CPU clock is the process's: neither neighbours nor idle "
        "waiting are in it, so it is no latency. The run's own: from the batch that let the page "
        "end. Gap: between two commits of a partition while events come.",
    )
    contended = result.get("contended")
    if contended:
        yield Table(
            f"The same with {contended['neighbours']} busy neighbours; at most "
            f"{contended['fastest']['events_per_s']:,.0f} events a second",
            head,
            [_row(share, [contended["rates"][share]]) for share in result["shares"]],
            "One round, whatever it shows, at shares of the quiet maximum: a process that works "
            "without end for each neighbour. They have the cores for milliseconds at once, so the "
            "wall clock shows them; the CPU clock shows what they cost us.",
        )
    controls = [each for one in rounds for each in one["controls"]]
    yield Table(
        "How quiet the machine was, in cores",
        ("of the maximum", "this process", "others", "stolen", "ready but behind others"),
        quiet,
        f"A loop that only looks at the clock, between the measurements, lost "
        f"{median(each['lost_percent'] for each in controls):.2f} % of its time, at once "
        f"{max(each['largest_gap_ms'] for each in controls):.1f} ms at most.",
    )


def figure(result: dict[str, Any]) -> str:
    """Draw a bar from p50 to p99 and a line to p99.9 per rate; the CPU clock's below.

    Returns:
        SVG text.
    """
    rows = [
        (share, {clock: _quantiles(result, share, clock) for clock in ("wall_ms", "cpu_ms")})
        for share in result["shares"]
    ]
    largest = max(each["p99.9"] for _, clocks in rows for each in clocks.values())
    scale = (_WIDTH - _LEFT - _RIGHT) / log10(max(largest, 2 * _LATENCY_MAX_MS) / _LEAST_MS)

    def x_of(value_ms: float) -> float:
        return _LEFT + log10(max(value_ms, _LEAST_MS) / _LEAST_MS) * scale

    height = _TOP + len(rows) * _ROW + 8
    drawn = []
    for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000):
        if x_of(tick) > _WIDTH - _RIGHT:
            break
        is_bar = tick == _LATENCY_MAX_MS
        drawn += [
            text_at(x_of(tick), _TOP - 12, f"{tick:g} ms" if tick == 1 else f"{tick:g}", "middle"),
            (
                f'<line x1="{x_of(tick):.1f}" y1="{_TOP - 8}" x2="{x_of(tick):.1f}" '
                f'y2="{height - 8}" stroke="{"#b91c1c" if is_bar else "#ddd"}"'
                f"{' stroke-dasharray="4 3"' if is_bar else ''}/>"
            ),
        ]
    for number, (share, clocks) in enumerate(rows):
        y = _TOP + _ROW * number
        rate = median(each["events_per_s"] for each in _counting(result, share))
        drawn.append(text_at(_LEFT - 8, y + 17, f"{float(share):.0%}: {rate:,.0f} events/s", "end"))
        drawn.append(
            text_at(_WIDTH - 8, y + 17, f"p99 {clocks['wall_ms']['p99']:.1f} ms", "end"),
        )
        for name, top, tall, colour in (("wall_ms", 3, 13, _WALL), ("cpu_ms", 18, 7, _CPU)):
            low, high, end = (x_of(clocks[name][each]) for each in ("p50", "p99", "p99.9"))
            middle = y + top + tall / 2
            drawn += [
                (
                    f'<line x1="{low:.1f}" y1="{middle}" x2="{end:.1f}" y2="{middle}" '
                    f'stroke="{colour}" stroke-width="2"/>'
                ),
                (
                    f'<rect x="{low:.1f}" y="{y + top}" width="{max(high - low, 1.0):.1f}" '
                    f'height="{tall}" fill="{colour}"/>'
                ),
            ]
    head = (
        "Page exit to commit: p50 to p99, line to p99.9; blue wall clock, grey CPU clock"
        f"{', a trial' if result['trial'] else ''}"
    )
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([opened, ground, text_at(8, 22, head), *drawn, "</svg>", ""])


def _quantiles(result: dict[str, Any], share: str, clock: str) -> dict[str, float]:
    found = _counting(result, share)
    return {name: _middle(found, clock, name) for name in ("p50", "p99", "p99.9")}


def _counting(result: dict[str, Any], share: str) -> list[dict[str, Any]]:
    # where no core was quiet, all of them: the bars say so
    found = [each["rates"][share] for each in result["rounds"]]
    return [each for each in found if is_quiet(each)] or found


def _row(share: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    wall, cpu, gap = (
        [_middle(found, clock, name) for name in ("p50", "p99", "p99.9", "max")]
        for clock in ("wall_ms", "cpu_ms", "commit_gap_ms")
    )
    return (
        f"{float(share):.0%}",
        f"{median(each['events_per_s'] for each in found):,.0f}",
        " / ".join(f"{each:.1f}" for each in wall[:3]),
        " / ".join(f"{each:.1f}" for each in cpu[:3]),
        f"{median(each['run_reports_ms']['p99'] for each in found):.1f}",
        f"{gap[1]:.1f}, {gap[3]:.1f}",
        f"{sum(each['wall_ms']['count'] for each in found):,}",
    )


def _middle(found: list[dict[str, Any]], clock: str, name: str) -> float:
    return median(each[clock][name] for each in found)


def _quiet(found: list[dict[str, Any]]) -> Iterator[str]:
    for name in ("ours", "others", "stolen", "waited"):
        known = [each["cores"][name] for each in found if each["cores"][name] is not None]
        yield f"{median(known):.2f}" if known else "unknown"


def _why_open(result: dict[str, Any], found: list[dict[str, Any]]) -> str:
    if result["quick"]:
        return "a quick look"
    if result["trial"]:
        return "a trial on a busy machine"
    behind = sum(each["backlog_ms"] > _BACKLOG_MAX_MS for each in found)
    if behind:
        return f"the pipeline did not keep up in {behind} of {len(found)} rounds"
    if not all(is_quiet(each) for each in found):
        return "the machine was not quiet in any round"
    if len(found) < result["settings"]["rounds"]:
        return f"the machine was quiet in {len(found)} rounds alone"
    return ""
