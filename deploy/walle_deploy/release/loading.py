"""Reads a file of the kind ``Release``; what is wrong has file, line and column."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from walle_deploy.release.model import Release
from walle_stream.errors import SpecFileError
from walle_stream.spec.annotations import resolve_paths
from walle_stream.spec.document import shown
from walle_stream.spec.messages import Refused, explain
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.suggestions import suggest


def load_release(file: Path, environ: Mapping[str, str] = os.environ) -> Release:
    """Load a release.

    Args:
        file: The YAML file.
        environ: For ``${VAR}``.

    Raises:
        SpecFileError: Something is wrong; the message names the place of the first problem.
    """
    documents = read_documents(file, environ)
    document = documents[0]
    if len(documents) > 1:
        raise documents[1].error((), f"expected one Release, found {len(documents)} documents")
    if not isinstance(document.value, dict):
        raise document.error((), f"expected a mapping, found {shown(document.value)}")
    kind = document.value.get("kind", "Release")
    if kind != "Release":
        hint = suggest(kind, ["Release"]) if isinstance(kind, str) else ""
        raise document.error(("kind",), f"expected the kind 'Release', found {shown(kind)}{hint}")
    resolve_paths(document, Release, (), document.value, file.parent.absolute())
    try:
        return Release.model_validate(document.value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = explain(Refused(document, Release, (), document.value), error)
    first = min(
        problems, key=lambda each: (each.is_consequence, each.error.line, each.error.column)
    )
    suffix = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    found = first.error
    raise SpecFileError(found.message + suffix, found.file, found.line, found.column)
