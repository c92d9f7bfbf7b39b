"""The paper's figure as an SVG: task time under the GIL and in VMs, by class."""

from typing import Any, Final

_WIDTH: Final = 760
_ROW: Final = 26
_LEFT: Final = 200
_RIGHT: Final = 150
_TOP: Final = 46
_COLOURS: Final = {"threads": "#b0b7c3", "vms": "#2563eb"}
_TITLES: Final = {"threads": "GIL threads", "vms": "VMs"}


def figure(result: dict[str, Any]) -> str:
    """Draw it: bars from p5 to p95, a box of the quartiles, a line at the median.

    Times are shown as a share of the median under the GIL, so that all classes
    fit on one scale.

    Returns:
        SVG text; empty when no round counted.
    """
    drawn: list[str] = []
    y = _TOP
    classes = {
        name: each for name, each in result["classes"].items() if "vms" in each["task_time_ms"]
    }
    shares = [
        each["task_time_ms"][name]["p95"] / each["task_time_ms"]["threads"]["p50"]
        for each in classes.values()
        for name in _TITLES
    ]
    if not shares:
        return ""
    scale = (_WIDTH - _LEFT - _RIGHT) / max(*shares, 1.0)
    for name, each in classes.items():
        unit = each["task_time_ms"]["threads"]["p50"]
        for contender, title in _TITLES.items():
            times = each["task_time_ms"][contender]
            drawn += _box(y, {key: value / unit * scale for key, value in times.items()}, contender)
            drawn.append(text_at(8, y + 15, f"{name}, {title}"))
            drawn.append(text_at(_LEFT - 8, y + 15, f"{times['p50']:,.2f} ms", "end"))
            if contender == "vms":
                gain = each["figure"]["improvement_mean_percent"]
                paper = each["figure"]["paper_percent"]
                text = f"{gain:+.1f} % (paper {paper:+.1f})"
                drawn.append(text_at(_WIDTH - 8, y + 15, text, "end"))
            y += _ROW
        y += 12
    x = _LEFT + scale
    tasks, python = result["settings"]["tasks"], result["versions"]["python"]
    head = (
        f"Task time of {tasks} tasks at once, median under the GIL = dashed line; "
        f"improvement of 1 / mean time (Python {python})"
    )
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" '
                'font-family="sans-serif" font-size="12">'
            ),
            f'<rect width="{_WIDTH}" height="{y}" fill="white"/>',
            text_at(8, 22, head),
            (
                f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{y - 8}" stroke="#888" '
                'stroke-dasharray="4 3"/>'
            ),
            *drawn,
            "</svg>",
            "",
        ]
    )


def _box(y: int, times: dict[str, float], contender: str) -> list[str]:
    colour = _COLOURS[contender]
    start, low, middle, high, end = (
        _LEFT + times[key] for key in ("p5", "p25", "p50", "p75", "p95")
    )
    return [
        (
            f'<line x1="{start:.1f}" y1="{y + 11}" x2="{end:.1f}" y2="{y + 11}" stroke="{colour}" '
            'stroke-width="2"/>'
        ),
        (
            f'<rect x="{low:.1f}" y="{y + 3}" width="{max(high - low, 1.0):.1f}" height="16" '
            f'fill="{colour}"/>'
        ),
        (
            f'<line x1="{middle:.1f}" y1="{y + 1}" x2="{middle:.1f}" y2="{y + 21}" stroke="#111" '
            'stroke-width="2"/>'
        ),
    ]


def text_at(x: float, y: float, text: str, anchor: str = "start") -> str:
    """Return a text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
