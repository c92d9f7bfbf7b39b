"""Paths in a definition."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


class PathMarker:
    """Marks a field as a path: relative to its file, or to the shell for ``--set``."""


def _without_nul(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path cannot contain NUL")
    return path


PathField = Annotated[Path, PathMarker(), AfterValidator(_without_nul)]
