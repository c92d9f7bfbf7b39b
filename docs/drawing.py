"""Draws boxes, arrows and time lines as SVG."""

from collections.abc import Sequence
from html import escape
from typing import Final

INK: Final = "#33475b"
TEXT: Final = "#1a202c"
SOFT: Final = "#4a5568"
GREEN: Final = ("#eef6f1", "#7fb69a")
BLUE: Final = ("#eef2fb", "#8aa2cf")

_LINE: Final = 18
_ARROW: Final = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>'
)


class Picture:
    """A picture of a size in pixels; later parts lie over earlier ones."""

    def __init__(self, width: int, height: int) -> None:
        """Begin with a white ground."""
        self._size = width, height
        self._parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def room(
        self, x: int, y: int, width: int, height: int, title: str, colors: tuple[str, str]
    ) -> None:
        """Draw the ground of boxes that belong together."""
        self._rectangle(x, y, width, height, *colors)
        self.text(x + 16, y + 24, title, weight="bold")

    def box(
        self, x: int, y: int, width: int, title: str, *lines: str, fill: str = "#ffffff"
    ) -> None:
        """Draw a box; its height follows from its lines."""
        self._rectangle(x, y, width, 34 + _LINE * len(lines), fill, INK)
        middle = x + width // 2
        self.text(middle, y + 22, title, weight="bold", anchor="middle")
        for number, line in enumerate(lines, 1):
            self.text(middle, y + 22 + _LINE * number, line, anchor="middle")

    def arrow(self, *corners: tuple[int, int]) -> None:
        """Draw a line through its corners; the last one has the head."""
        path = " ".join(f"{x},{y}" for x, y in corners)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.5" '
            'marker-end="url(#a)"/>'
        )

    def bar(self, x: float, y: int, width: float, color: str) -> None:
        """Draw a stretch of time."""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="14" rx="3" fill="{color}"/>'
        )

    def dot(self, x: float, y: int, color: str = INK) -> None:
        """Draw a moment."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="4.5" fill="{color}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        color: str = TEXT,
        anchor: str = "start",
        weight: str = "",
    ) -> None:
        """Write one line."""
        bold = f' font-weight="{weight}"' if weight else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}"{bold}>'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        """Return the picture as a file's text."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13">'
        )
        return "\n".join([head, _ARROW, *self._parts, "</svg>\n"])

    def _rectangle(self, x: int, y: int, width: int, height: int, fill: str, line: str) -> None:
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" '
            f'stroke="{line}"/>'
        )


def stack(picture: Picture, x: int, y: int, width: int, rows: Sequence[Sequence[str]]) -> int:
    """Draw rows of equal boxes from the top down; return the last row's lower edge."""
    for names in rows:
        gap, each = 10, (width - 10 * (len(names) - 1)) // len(names)
        for number, name in enumerate(names):
            picture.box(x + number * (each + gap), y, each, name)
        y += 34 + gap
    return y
