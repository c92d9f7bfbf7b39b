"""Files that travel with the package: example pipelines and templates."""

from importlib.resources import files
from pathlib import Path

from walle_stream.errors import SpecFileError


def find_definition(name: str) -> Path:
    """Find a pipeline file by its path, or by the name (``ipv``) of a shipped pipeline.

    A path that does not exist is returned unchanged: the loader reports the error.
    """
    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return path
    shipped = shipped_configs() / f"{name}.yaml"
    return shipped if shipped.exists() else path


def shipped_configs() -> Path:
    """Return the folder of the example pipelines, in a wheel or a checkout.

    Raises:
        SpecFileError: The installation is incomplete.
    """
    package = Path(str(files("walle_stream")))
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "ipv.yaml").exists():
            return folder
    raise SpecFileError("the example pipelines are not installed: install walle-stream again")
