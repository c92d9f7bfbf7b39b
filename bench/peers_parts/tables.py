"""The table and the figure of the peers: for the terminal and ``bench/results/README.md``."""

from collections.abc import Iterator
from typing import Any, Final

from vm_parts.plot import text_at
from vm_parts.tables import Table

_WIDTH: Final = 760
_ROW: Final = 30
_LEFT: Final = 190
_RIGHT: Final = 90
_TOP: Final = 46
_OURS: Final = "#2563eb"
_OTHERS: Final = "#b0b7c3"


def tables(result: dict[str, Any]) -> Iterator[Table]:
    """Make the tables."""
    head = (
        "contender",
        "version",
        "Python",
        "events / CPU-s",
        "quartiles",
        "without start",
        "peak RSS, MiB",
        "walle is",
    )
    rows = []
    for each in result["contenders"]:
        speed = each["events_per_cpu_second"]
        versions = dict(each["versions"])
        python = versions.pop("python")
        ratio, alone = each.get("walle_ratio"), each["without_start"]
        rows.append(
            (
                each["title"],
                next(iter(versions.values()), ""),
                python,
                f"{speed['median']:,.0f}",
                f"{speed['q1']:,.0f} - {speed['q3']:,.0f}",
                f"{alone['median']:,.0f}" if alone else "too short",
                f"{each['peak_rss_mib']:,.0f}",
                f"{ratio['median']:.2f} times" if ratio else "",
            )
        )
    rows += [(each["title"], "", "", "none", "", "", "", "") for each in result["missing"]]
    note = "Whole processes; the start is that of a run over one event. All made the same features."
    yield Table("Item page views of the shop", head, rows, note)
    known = [(each["title"], each["note"]) for each in result["contenders"]]
    known += [(each["title"], f"did not take part: {each['reason']}") for each in result["missing"]]
    yield Table("Notes on the contenders", ("contender", "what to know"), known)


def figure(result: dict[str, Any]) -> str:
    """Draw a bar per contender up to its median, and a line over its quartiles.

    Returns:
        SVG text.
    """
    contenders = result["contenders"]
    speeds = [each["events_per_cpu_second"] for each in contenders]
    scale = (_WIDTH - _LEFT - _RIGHT) / max(speed["q3"] for speed in speeds)
    height = _TOP + _ROW * len(contenders) + 8
    drawn = []
    for number, (each, speed) in enumerate(zip(contenders, speeds, strict=True)):
        y = _TOP + _ROW * number
        colour = _OURS if each["name"] == "walle" else _OTHERS
        drawn += [
            text_at(_LEFT - 8, y + 15, each["title"], "end"),
            (
                f'<rect x="{_LEFT}" y="{y + 2}" width="{speed["median"] * scale:.1f}" height="18" '
                f'fill="{colour}"/>'
            ),
            (
                f'<line x1="{_LEFT + speed["q1"] * scale:.1f}" y1="{y + 11}" '
                f'x2="{_LEFT + speed["q3"] * scale:.1f}" y2="{y + 11}" stroke="#111" '
                'stroke-width="2"/>'
            ),
            text_at(_WIDTH - 8, y + 15, f"{speed['median']:,.0f}", "end"),
        ]
    head = (
        "Item page views of a simulated shop: events per CPU-second, median and quartiles "
        f"of {result['settings']['rounds']}{', a trial' if result['trial'] else ''}"
    )
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([opened, ground, text_at(8, 22, head), *drawn, "</svg>", ""])
