"""Project template of ``walle init``: a pipeline with task, script, sample and test."""

import re
from pathlib import Path
from typing import Final

from walle_stream.app.resources import shipped_configs
from walle_stream.errors import SpecFileError

_NAME_MAX: Final = 40


def make_project(folder: Path) -> list[Path]:
    """Copy the template into a new or empty folder; return the files made.

    Raises:
        SpecFileError: The folder is not empty, or cannot be made.
    """
    name = _pipeline_name(folder)
    paths = []
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SpecFileError(f"{folder} exists already and is not empty: choose another name")
        folder.mkdir(parents=True, exist_ok=True)
        for template in sorted((shipped_configs() / "template").iterdir()):
            if template.is_file():
                content = template.read_bytes()
                if template.name == "pipeline.yaml":
                    content = content.replace(b"name: visits\n", f"name: {name}\n".encode(), 1)
                paths.append(folder / template.name)
                paths[-1].write_bytes(content)
    except OSError as error:
        raise SpecFileError(
            f"{folder} cannot be made: {error.strerror or error}: choose another place"
        ) from error
    return paths


def _pipeline_name(folder: Path) -> str:
    # the data directory is named after the pipeline, and two projects must not share one
    text = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")[:_NAME_MAX]
    return text if text[:1].isalpha() else f"visits-{text}".strip("-")
