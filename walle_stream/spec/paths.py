"""Paths in a definition."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


class PathMarker:
    """Mark of a path field: relative to its file, or to the shell for ``--set``."""


def _without_nul(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path cannot contain NUL")
    return path


PathField = Annotated[Path, PathMarker(), AfterValidator(_without_nul)]


def reached(place: str) -> str:
    """Return a folder or URL after checking its form.

    Raises:
        ValueError: The form is wrong; the message does not show the text.
    """
    scheme, is_url, rest = place.partition("://")
    if not is_url:
        return str(_without_nul(Path(place)))
    if scheme not in {"file", "s3", "gs", "az"} or (scheme == "file") != rest.startswith("/"):
        raise ValueError("give a folder, file:///FOLDER, s3://BUCKET, gs://BUCKET or az://...")
    if {".", ".."} & set(rest.split("/")):
        raise ValueError("a URL cannot contain the steps . and ..")
    if not rest.strip("/") or set(rest) & set("@?#"):
        raise ValueError("give a bucket; credentials come from the environment, not in a URL")
    return place


PlaceField = Annotated[str, PathMarker(), AfterValidator(reached)]
"""A folder as a path, or a URL with a known scheme."""


def _told_apart(place: Path | str) -> Path | str:
    return reached(str(place)) if "://" in str(place) else _without_nul(Path(place))


InputField = Annotated[Path | str, PathMarker(), AfterValidator(_told_apart)]
"""A file or folder as a path, or a URL as text."""
