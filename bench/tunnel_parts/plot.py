"""Latency by size as an SVG: ours over each link, the bare client, the paper."""

from collections.abc import Iterator
from math import log10
from typing import Any, Final

from vm_parts.plot import text_at

from tunnel_parts.bars import PAPER

_WIDTH: Final = 760
_HEIGHT: Final = 420
_LEFT: Final = 60
_RIGHT: Final = 190
_TOP: Final = 50
_BOTTOM: Final = 40
_COLOURS: Final = {"loopback": "#2563eb", "50 ms": "#0f766e", "phone": "#b45309"}
_PAPER: Final = "#b91c1c"
_TICKS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)


class _Scale:
    # both axes are logarithmic

    def __init__(self, sizes: list[int], values: list[float]) -> None:
        self._least, self._most = log10(sizes[0]), log10(sizes[-1])
        self._low, self._high = log10(min(values) / 1.3), log10(max(values) * 1.3)

    def x(self, size: float) -> float:
        share = (log10(size) - self._least) / (self._most - self._least)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value_ms: float) -> float:
        share = (log10(value_ms) - self._low) / (self._high - self._low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def ticks(self) -> list[float]:
        return [each for each in _TICKS_MS if self._low <= log10(each) <= self._high]


def figure(result: dict[str, Any]) -> str:
    """Draw p50 (thin) and p99 (thick) until the acknowledgement, up.

    Args:
        result: Of a run with the part ``warm``, see ``bench/tunnel.py``.

    Returns:
        SVG text.
    """
    transport, sizes = result["listeners"][-1], result["sizes"]
    lines = [
        (link, who, name, _line(result, transport, link, who, name))
        for link in _COLOURS
        for who in ("ours", "bare")
        for name in ("p50", "p99")
    ]
    values = [value for *_, line in lines for value in line]
    scale = _Scale(sizes, [*values, *(each.ms for each in PAPER)])
    drawn = list(_axes(scale, sizes))
    for link, who, name, line in lines:
        points = " ".join(
            f"{scale.x(size):.1f},{scale.y(value):.1f}"
            for size, value in zip(sizes, line, strict=True)
        )
        dashed = ' stroke-dasharray="4 3"' if who == "bare" else ""
        width = 2.5 if name == "p99" else 1
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLOURS[link]}" '
            f'stroke-width="{width}"{dashed}/>'
        )
    for each in PAPER:
        x, y = scale.x(each.size), scale.y(each.ms)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_PAPER}"/>')
    head = (
        f"Up, warm {transport}, a record alone until it is acknowledged, by size; ms"
        f"{', a trial' if result['trial'] else ''}"
    )
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([opened, ground, text_at(8, 22, head), *drawn, *_legend(), "</svg>", ""])


def _line(result: dict[str, Any], transport: str, link: str, who: str, name: str) -> list[float]:
    wanted = {"way": "up", "who": who, "transport": transport, "link": link}
    by_size = {
        each["size"]: each["acked_ms"][name]
        for each in result["warm"]
        if wanted.items() <= each.items()
    }
    return [by_size[size] for size in result["sizes"]]


def _axes(scale: _Scale, sizes: list[int]) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for tick in scale.ticks():
        y = scale.y(tick)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text_at(_LEFT - 8, y + 4, f"{tick:g}", "end")
    for size in sizes:
        x = scale.x(size)
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>'
        yield text_at(x, bottom + 18, f"{size / 1e3:g} KB", "middle")


def _legend() -> Iterator[str]:
    x, y = _WIDTH - _RIGHT + 16, _TOP + 10
    for link, colour in _COLOURS.items():
        drawn = f'x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" stroke="{colour}"'
        yield f'<line {drawn} stroke-width="2.5"/>'
        name = {"50 ms": "50 ms round trip", "phone": "and jitter, 1 % loss"}.get(link, link)
        yield text_at(x + 32, y + 4, name)
        y += 20
    yield f'<circle cx="{x + 12}" cy="{y}" r="5" fill="{_PAPER}"/>'
    yield text_at(x + 32, y + 4, "the paper (mean)")
    yield text_at(x, y + 26, "thick p99, thin p50")
    yield text_at(x, y + 44, "dashed: kafka-python alone")
