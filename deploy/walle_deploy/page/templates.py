"""Fills templates, and escapes each value, so that no text becomes markup.

A field is as in ``str.format``. If its format is the name of another template, that template is
filled with the value as ``it``, or with each item of a list. None fills in nothing.

Devices, authors and operators choose many of the shown texts: classes of errors, names, reasons. So
invisible or reordering characters are shown as escapes, and long texts are cut.
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
    """Markup from ``filled``; no other text is markup."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Take the text."""
        self.text = text


def filled(name: str, **values: Any) -> Html:
    """Return a template with all fields filled in."""
    return Html(_filling.vformat(_templates[name], (), values))


class _Filling(Formatter):
    @override
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _templates:
            every = value if isinstance(value, list | tuple) else [value]
            return "".join(filled(format_spec, it=item).text for item in every if item is not None)
        if isinstance(value, Html):
            return value.text
        if format_spec == "points":  # numbers of a line; all are kept
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
