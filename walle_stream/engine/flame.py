"""Flame graph of a profile, as plain SVG: the model, its operators, their nodes and steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from walle_stream.engine.profiling import Profile, Timing

_WIDTH: Final = 1200
_ROW: Final = 26
_TOP: Final = 64
_MARGIN: Final = 8
_SMALL: Final = 0.6
"""Width in pixels below which neighbours are drawn as one box."""
_LETTER: Final = 6.6
"""Approximate width of a letter, in pixels."""
_COLOURS: Final = {
    "model": "#cbd5e1", "operator": "#93c5fd", "node": "#bfdbfe", "atomic": "#fdba74",
    "matmul": "#f87171", "raster": "#86efac", "other": "#e2e8f0",
}  # fmt: skip
_LEGEND: Final = ("operator", "node", "matmul", "atomic", "raster", "other")


@dataclass(frozen=True, slots=True)
class _Box:
    row: int
    start_ms: float
    ms: float
    kind: str
    label: str
    title: str


def flame_svg(profile: Profile) -> str:
    """Draw a profile as SVG: the width of a box is its time, and its title has all figures."""
    whole_ms = max(profile.mean_ms, 1e-9)
    scale = (_WIDTH - 2 * _MARGIN) / whole_ms
    boxes = _joined(_boxes(profile), scale)
    height = _TOP + 4 * _ROW + 2 * _MARGIN
    head = (
        f"{profile.model or 'model'}: {profile.mean_ms:,.3f} ms a run (median"
        f" {profile.median_ms:,.3f}), backend {profile.backend}, {profile.repeats} runs"
    )
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_MARGIN}" y="20" font-size="14">{_clean(head)}</text>',
        *_legend(),
        *(_drawn(box, scale) for box in boxes),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _boxes(profile: Profile) -> list[_Box]:
    boxes = [
        _Box(0, 0, profile.mean_ms, "model", profile.model or "model",
             f"{profile.model or 'model'}: {profile.mean_ms:,.3f} ms a run"),
    ]  # fmt: skip
    start_ms = 0.0
    for operator in profile.operators():
        nodes = [timing for timing in profile.nodes if timing.operator == operator.name]
        title = f"{_facts(operator)}, {len(nodes)} nodes"
        boxes.append(_Box(1, start_ms, operator.ms, "operator", operator.name, title))
        for node in nodes:
            title = _facts(node.total, f"{node.operator} {node.name}")
            boxes.append(_Box(2, start_ms, node.total.ms, "node", node.name, title))
            step_ms = start_ms
            for step in node.steps:
                kind = step.name if step.name in _COLOURS else "atomic"
                title = f"{_facts(step)}, of {node.operator} {node.name}"
                boxes.append(_Box(3, step_ms, step.ms, kind, step.name, title))
                step_ms += step.ms
            start_ms += node.total.ms
    other = profile.other
    title = f"{_facts(other)}: copies of inputs and outputs, look-ups of plans, control flow"
    boxes.append(_Box(1, start_ms, other.ms, "other", "other", title))
    return boxes


def _joined(boxes: list[_Box], scale: float) -> list[_Box]:
    """Join small neighbours of a row: thousands of slivers are unreadable and slow to load."""
    kept: list[_Box] = []
    small: dict[int, list[_Box]] = {}

    def flush(row: int) -> None:
        group = small.pop(row, [])
        if len(group) < 2:  # noqa: PLR2004  # a single box keeps its label
            kept.extend(group)
            return
        ms = sum(box.ms for box in group)
        label = f"{len(group)} more"
        title = f"{len(group)} small boxes: {ms:,.3f} ms"
        kept.append(_Box(row, group[0].start_ms, ms, group[0].kind, label, title))

    for box in boxes:
        if box.ms * scale >= _SMALL:
            flush(box.row)
            kept.append(box)
        else:
            small.setdefault(box.row, []).append(box)
    for row in list(small):
        flush(row)
    return kept


def _drawn(box: _Box, scale: float) -> str:
    x, y = _MARGIN + box.start_ms * scale, _TOP + box.row * _ROW
    width = max(box.ms * scale, 0.3)
    room = int((width - 6) / _LETTER)
    label = box.label if len(box.label) <= room else f"{box.label[: room - 1]}…"
    text = ""
    if room >= 3:  # noqa: PLR2004  # fewer letters are unreadable
        text = f'<text x="{x + 3:.2f}" y="{y + 17}" pointer-events="none">{_clean(label)}</text>'
    return (
        f'<g><title>{_clean(box.title)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" '
        f'height="{_ROW - 1}" fill="{_COLOURS[box.kind]}" stroke="white" stroke-width="0.4"/>'
        f"{text}</g>"
    )


def _legend() -> Iterator[str]:
    for number, kind in enumerate(_LEGEND):
        x = _MARGIN + 110 * number
        yield f'<rect x="{x}" y="34" width="14" height="14" fill="{_COLOURS[kind]}"/>'
        yield f'<text x="{x + 20}" y="46">{kind}</text>'


def _facts(timing: Timing, name: str = "") -> str:
    return (
        f"{name or timing.name}: {timing.ms:,.3f} ms, {timing.share:.1%}, "
        f"{timing.calls:,.0f} calls, {timing.bytes / 1e6:,.2f} MB read and written"
    )


def _clean(text: str) -> str:
    # names come from a model, and XML forbids control characters
    return escape("".join(character if character.isprintable() else "\ufffd" for character in text))
