"""Paths in a definition."""

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator


class PathMarker:
    """Marks a field as a path: relative to its file, or to the shell for ``--set``."""


def _without_nul(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path cannot contain NUL")
    return path


PathField = Annotated[Path, PathMarker(), AfterValidator(_without_nul)]


def reached(place: str) -> str:
    """Return a folder or URL that can be one.

    Raises:
        ValueError: It can be none; the message does not show it.
    """
    parts = urlsplit(place)
    if "://" not in place:
        return str(_without_nul(Path(place)))
    if parts.scheme not in SCHEMES:
        raise ValueError(f"a folder, or one of {', '.join(f'{each}://' for each in SCHEMES)}")
    if "@" in parts.netloc or parts.query:
        raise ValueError("credentials and options stand in no URL: they come from the environment")
    if bool(parts.netloc) == (parts.scheme == "file") or (
        parts.scheme == "file" and not parts.path
    ):
        raise ValueError("file:///FOLDER, or a bucket behind the ://")
    return place


SCHEMES: Final = ("file", "s3", "gs", "az")
"""Of URLs that a place may have."""

PlaceField = Annotated[str, PathMarker(), AfterValidator(reached)]
"""A folder as a path, or a URL of one of the schemes."""
