"""Reads a file of the kind ``Release``; what is wrong has file, line and column."""

import os
from collections.abc import Mapping
from pathlib import Path

from walle_deploy.release.model import Release
from walle_stream.spec.single import load_single


def load_release(file: Path, environ: Mapping[str, str] = os.environ) -> Release:
    """Load a release; paths in it are absolute then, as other processes read them.

    Args:
        file: The YAML file.
        environ: For ``${VAR}``.

    Raises:
        SpecFileError: Something is wrong; the message names the place of the first problem.
    """
    return load_single(file, "Release", Release, environ, file.parent.absolute())
