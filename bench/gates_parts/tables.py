"""Bars, tables and the picture of what the gates decided."""

from collections.abc import Iterator, Mapping, Sequence
from math import log10
from typing import Any, Final

from vm_parts.plot import text_at
from vm_parts.tables import Table, bars_table

POOLED: Final = 0.05
"""Bar: share of the releases of versions like the one before that are stopped, over all fleets."""
ANY: Final = 0.075
"""The same in any fleet."""
SOON: Final = 0.95
"""Bar: share of the versions that fail on 2 % stopped before a tenth of the devices have them."""
AT_ALL: Final = 0.9
"""Bar: share of those that fail on 0.5 % stopped before the end."""

_LARGE: Final = 0.02
_TENTH: Final = 0.1
_LEFT, _WIDTH, _ROW, _TOP = 400, 930, 20, 46
_LEAST: Final = 0.001
_HOUR, _DAY = 60, 1_440
_KINDS: Final = {
    "alike": "",
    "spread": ", devices differ widely",
    "slow": ", a tenth slow",
    "broken": ", 0.5 % broken",
    "busy": ", 0.2 % run always",
    "busy 5 %": ", 5 % run always",
    "busy 10 %": ", 10 % run always",
}


def title_of(found: Mapping[str, Any]) -> str:
    """Return what a setting is called."""
    minutes = found["minutes"]
    step = (
        f"{minutes} min"
        if minutes < _HOUR
        else f"{minutes // _HOUR} h"
        if minutes < _DAY
        else f"{minutes // _DAY} d"
    )
    failing = f"{found['failing']:.1%} fail, " if found["failing"] else ""
    rhythm = "daily" if found["daily"] else "flat"
    return (
        f"{failing}{found['devices']:,} devices, {found['base']:g}, {step}, "
        f"{rhythm}{_KINDS[found['kind']]}"
    )


def bars(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bars; none for what was not simulated."""
    found = result["settings"]
    alike = [each for each in found if not each["failing"] and each["kind"] == "alike"]
    odd = [each for each in found if not each["failing"] and each["kind"] != "alike"]
    made = []
    if alike:
        pooled = sum(each["stopped"] for each in alike) / sum(each["runs"] for each in alike)
        made.append(_bar("like the one before, stopped, pooled", pooled, most=POOLED))
        made.append(_bar("the same, the worst fleet", max(map(_stopped, alike)), most=ANY))
    if odd:
        made.append(
            _bar("like the one before, odd fleets, worst", max(map(_stopped, odd)), most=ANY)
        )
    for daily in (False, True):
        rhythm = "daily" if daily else "flat"
        # of odd fleets the table tells
        alike = [each for each in found if each["kind"] == "alike" and each["daily"] == daily]
        bad = [each for each in alike if each["failing"]]
        large = [each["before_a_tenth"] / each["runs"] for each in bad if each["failing"] == _LARGE]
        small = [_stopped(each) for each in bad if each["failing"] != _LARGE]
        if large:
            name = f"fails on 2 %, stopped before 10 % have it, {rhythm}, the worst fleet"
            made.append(_bar(name, min(large), least=SOON))
        if small:
            name = f"fails on 0.5 %, stopped before the end, {rhythm}, the worst fleet"
            made.append(_bar(name, min(small), least=AT_ALL))
    return made


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables."""
    yield bars_table(list(result["bars"]))
    head = "devices, share of runs that fail, step, rhythm"
    alike = [each for each in result["settings"] if not each["failing"]]
    if alike:
        rows = [
            (
                title_of(each),
                f"{each['stopped']} of {each['runs']}",
                f"{_stopped(each):.1%}",
                ", ".join(f"{gate}: {count}" for gate, count in sorted(each["by_gate"].items())),
            )
            for each in alike
        ]
        yield Table("Versions like the one before", (head, "stopped", "share", "by"), rows)
    bad = [each for each in result["settings"] if each["failing"]]
    if bad:
        rows = [
            (
                title_of(each),
                f"{_stopped(each):.1%}",
                f"{each['before_a_tenth'] / each['runs']:.1%}",
                _reached(each["reached"]),
            )
            for each in bad
        ]
        heads = (head, "stopped", "before 10 % have it", "had it then: p5, median, p95")
        yield Table("Versions that fail on some devices", heads, rows)


def figure(result: Mapping[str, Any]) -> str:
    """Draw how often a good version is stopped, and how many devices have a bad one by then.

    Returns:
        SVG text.
    """
    alike = [each for each in result["settings"] if not each["failing"]]
    bad = [each for each in result["settings"] if each["failing"]]
    drawn = [
        text_at(8, 20, "Stopped though like the one before: bars at 5 and 7.5 %"),
        text_at(_LEFT - 8, _TOP - 8, "devices, share of runs that fail, step, rhythm", "end"),
    ]
    drawn += _panel(alike, _TOP, lambda share: _LEFT + share / 0.1 * _SPAN, (POOLED, ANY), _false)
    below = _TOP * 2 + _ROW * len(alike)
    about = "Devices that had it when it was stopped: p5 to p95, bar at 10 %"
    drawn.append(text_at(8, below - 26, about))
    drawn += _panel(bad, below, _log_x, (0.01, _TENTH, 1.0), _true)
    height = below + _ROW * len(bad) + 10
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([opened, ground, *drawn, "</svg>", ""])


_SPAN: Final = _WIDTH - _LEFT - 30


def _log_x(share: float) -> float:
    return _LEFT + log10(max(share, _LEAST) / _LEAST) / 3 * _SPAN


def _panel(
    found: Sequence[Any], top: int, x_of: Any, ticks: Sequence[float], draw: Any
) -> list[str]:
    drawn = []
    for tick in ticks:
        x = x_of(tick)
        drawn.append(text_at(x, top - 8, f"{tick:.1%}", "middle"))
        colour = "#b91c1c" if tick in {POOLED, ANY, _TENTH} else "#d1d5db"
        drawn.append(_line(x, x, top - 4, top + _ROW * len(found), colour))
    for number, each in enumerate(found):
        y = top + _ROW * number
        drawn.append(text_at(_LEFT - 8, y + 14, title_of(each), "end"))
        drawn += draw(each, x_of, y)
    return drawn


def _false(each: Mapping[str, Any], x_of: Any, y: int) -> list[str]:
    width = max(1.0, x_of(_stopped(each)) - _LEFT)
    return [f'<rect x="{_LEFT}" y="{y + 4}" width="{width:.1f}" height="12" fill="#2563eb"/>']


def _true(each: Mapping[str, Any], x_of: Any, y: int) -> list[str]:
    if each["reached"] is None:
        return []
    low, middle, high = (x_of(share) for share in each["reached"])
    return [
        _line(low, high, y + 10, y + 10, "#2563eb", 4),
        f'<circle cx="{middle:.1f}" cy="{y + 10}" r="5" fill="#2563eb"/>',
    ]


def _line(x1: float, x2: float, y1: float, y2: float, colour: str, width: int = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    )


def _stopped(each: Mapping[str, Any]) -> float:
    return float(each["stopped"] / each["runs"])


def _reached(shares: Sequence[float] | None) -> str:
    return "none" if shares is None else ", ".join(f"{share:.1%}" for share in shares)


def _bar(
    name: str,
    value: float,
    most: float | None = None,
    least: float | None = None,
) -> dict[str, Any]:
    met = value <= most if most is not None else value >= (least or 0.0)
    bar = f"at most {most:g}" if most is not None else f"at least {least:g}"
    return {
        "name": name,
        "bar": bar,
        "value": round(value, 4),
        "met": met,
        "note": "",
    }
