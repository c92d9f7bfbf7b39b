"""A YAML document: its values, and the place of each of them.

A place is a line and a column, from 1. A value from an override has no place in
the file, and its errors name ``--set``. Place in the data flow: ``nodes`` makes
documents, ``overrides`` changes them, and each module that refuses a value asks
them for the error.
"""

import re
from typing import Any, Final

from yaml import Mark

from walle_stream.errors import SpecFileError

type Key = tuple[str | int, ...]
"""A place in a document: mapping keys and list indices from the root."""

MASK: Final = "***"
"""Replaces a value from the environment in a message."""

_PLAIN: Final = re.compile(r"[\w-]{1,60}")
_SET_PLACE: Final = (0, 0)
_SHOWN_MAX: Final = 60
_PATH_MAX: Final = 200
_SHORT: Final = 4


class Document:
    """One YAML document: its values and their places."""

    def __init__(self, file: str) -> None:
        """Make an empty document; ``file`` is the name that the user gave."""
        self.file = file
        self.value: Any = None
        self.places: dict[Key, tuple[int, int]] = {}
        """Line and column, from 1, of each value."""
        self.key_places: dict[Key, tuple[int, int]] = {}
        """Line and column of the key in front of each value."""
        self.masked: set[str] = set()
        """Values from the environment."""
        self.secrets: dict[Key, tuple[str, ...]] = {}
        """Values from the environment, by the place that uses them."""
        self.raw_texts: dict[Key, str] = {}
        """Text of each ``${VAR}`` whose value was read as something other than text."""

    @classmethod
    def of_override(cls) -> "Document":
        """Return an empty document whose errors name ``--set``."""
        document = cls("--set")
        document.places[()] = _SET_PLACE
        return document

    def place(self, key: Key, mark: Mark, *, is_key: bool = False) -> None:
        """Remember the place of a value, or of the key in front of it."""
        if self.places.get(()) == _SET_PLACE:
            return
        (self.key_places if is_key else self.places)[key] = (mark.line + 1, mark.column + 1)

    def replace(self, key: Key) -> None:
        """Forget the file's places and texts at ``key`` and below: an override made the value."""
        known_by_place: tuple[dict[Key, Any], ...] = (
            self.places,
            self.key_places,
            self.secrets,
            self.raw_texts,
        )
        for known in known_by_place:
            for other in [other for other in known if other[: len(key)] == key]:
                del known[other]
        self.places[key] = self.key_places[key] = _SET_PLACE

    def find(self, key: Key, *, is_key: bool = False) -> tuple[int, int]:
        """Return line and column of the value at ``key``; ``(0, 0)`` if an override made it.

        A missing key has the place of its nearest known parent. With ``is_key`` the result is the
        place of the key in front of the value.
        """
        for length in range(len(key), -1, -1):
            mark = self.places.get(key[:length])
            if is_key:
                mark = self.key_places.get(key[:length], mark)
            if mark is not None:
                return mark
        return 1, 1

    def shown_place(self, key: Key) -> str:
        """Return a place as the start of a message: ``FILE:LINE:COLUMN``, or ``--set``."""
        line, column = self.find(key)
        return f"{self.file}:{line}:{column}" if (line, column) != _SET_PLACE else "--set"

    def is_overridden(self, key: Key) -> bool:
        """Return whether an override made the value at ``key``."""
        return self.find(key) == _SET_PLACE

    def error(self, key: Key, message: str, *, is_key: bool = False) -> SpecFileError:
        """Return an error at a place, without any value from the environment.

        A missing key has the place of its nearest known parent. ``is_key`` means that the key
        itself is wrong, or something below it.
        """
        line, column = self.find(key, is_key=is_key)
        path = format_key(key)
        for place, secrets in self.secrets.items():
            if place[: len(key)] == key:
                for secret in sorted(secrets, key=len, reverse=True):
                    message = masked(message, secret)
        text = " ".join(f"{path}: {message}".split()) if path else message
        if (line, column) == _SET_PLACE:
            return SpecFileError(f"--set: {text}", "--set")
        return SpecFileError(f"{self.file}:{line}:{column}: {text}", self.file, line, column)


def masked(message: str, secret: str) -> str:
    """Return a message without a value from the environment.

    A very short value is replaced only where it is a whole word.
    """
    for text in {secret, repr(secret)[1:-1]}:
        if len(text) < _SHORT:
            # not within other words and numbers
            message = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", MASK, message)
            continue
        message = message.replace(text, MASK)
        # cut short by shown()
        for length in range(min(len(text), _SHOWN_MAX), _SHORT - 1, -1):
            message = message.replace(text[:length] + "...", MASK)
    return message


def format_key(key: Key) -> str:
    """Return a key as people write it, ``spec.tasks[0].script``; a very long text is cut."""
    text = ""
    for part in key:
        if isinstance(part, int) or not _PLAIN.fullmatch(part):
            text += f"[{shown(part)}]"
        else:
            text += f".{part}" if text else part
    return text if len(text) <= _PATH_MAX else f"{text[:_PATH_MAX]}..."


def shown(value: Any) -> str:
    """Return a value for a message: short, on one line."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
