"""Fills templates: whatever is filled in is escaped, so no text becomes markup.

A field is as in ``str.format``. Where its format is the name of another template, that one is
filled with the value as ``it``, or with each one of a list; None is nothing there.

What is shown may be anybody's: a device's classes of errors, an author's names, an operator's
reasons. So characters that nobody sees, or that reorder what stands beside them, are shown as
their escapes, and long texts are cut.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Formatter
from typing import Any, Final, override
from urllib.parse import quote

SERVED: Final = Path(__file__).parent / "served"
_SHOWN_MAX: Final = 2_000


class Html:
    """Markup: what ``filled`` returns, and nothing else is."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Keep it."""
        self.text = text


def filled(name: str, **values: Any) -> Html:
    """Return a template, filled."""
    return Html(_filling.vformat(_templates[name], (), values))


class _Filling(Formatter):
    @override
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _templates:
            every = value if isinstance(value, list | tuple) else [value]
            return "".join(filled(format_spec, it=item).text for item in every if item is not None)
        if isinstance(value, Html):
            return value.text
        if format_spec == "points":  # of a line: numbers, of which none is left out
            return " ".join(f"{x:.1f},{y:.4f}" for x, y in value)
        if value is None or value == "":
            return "–"
        own = _FORMATS.get(format_spec)
        return _escaped(own(value) if own is not None else format(value, format_spec))


def _escaped(text: str) -> str:
    if len(text) > _SHOWN_MAX:
        text = f"{text[:_SHOWN_MAX]}… ({len(text):,} characters)"
    return escape(
        "".join(character if character.isprintable() else _visible(character) for character in text)
    )


def _visible(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode("ascii")


_FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "rest": lambda text: text.partition(": ")[2],
    "time": lambda at_ms: f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M}Z",
    "url": lambda text: quote(text, safe=""),
    "words": lambda text: text.replace("_", " "),
}
_pieces: Final = re.split(r"<!-- (\S+) -->\n", (SERVED / "templates.html").read_text("utf-8"))
_templates: Final = dict(zip(_pieces[1::2], _pieces[2::2], strict=True))
_filling: Final = _Filling()
