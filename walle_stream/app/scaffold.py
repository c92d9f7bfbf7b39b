"""``walle init``: a new pipeline with task, script, sample and test."""

from pathlib import Path

from walle_stream.app.resources import shipped_configs
from walle_stream.errors import SpecFileError


def make_project(folder: Path) -> list[Path]:
    """Copy the template into a new folder.

    Args:
        folder: Must not exist, or be empty.

    Returns:
        The files made.

    Raises:
        SpecFileError: The folder holds something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecFileError(f"{folder} exists already and is not empty: choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for template in sorted((shipped_configs() / "template").iterdir()):
        if template.is_file():
            made.append(folder / template.name)
            made[-1].write_bytes(template.read_bytes())
    return made
