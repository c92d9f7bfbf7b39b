"""Definitions of the platform's own kinds, with the places of what is wrong in them.

As ``walle_stream.spec.loader`` does for tasks and pipelines: the same YAML, the same
messages with file, line and column.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from walle_deploy.policy.model import Policy
from walle_stream.errors import SpecFileError
from walle_stream.spec.annotations import resolve_paths
from walle_stream.spec.document import shown
from walle_stream.spec.messages import Refused, explain
from walle_stream.spec.models import API_VERSION, Metadata
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.strict import Strict
from walle_stream.spec.suggestions import suggest


class PolicyDefinition(Strict):
    """A file of ``kind: Policy``: what ``spec.policy`` of a release is, alone in a file."""

    api_version: Literal["walle/v1"] = Field(description="Version of the format.")
    kind: Literal["Policy"] = Field(description="What this is.")
    metadata: Metadata = Field(description="Who it is.")
    spec: Policy = Field(description="The policy.")


def load_definition[M: Strict](
    file: Path, model: type[M], environ: Mapping[str, str] = os.environ
) -> M:
    """Load a file that holds one definition.

    Args:
        file: The YAML file; paths in it are relative to its folder.
        model: With ``api_version`` and ``kind``.
        environ: For ``${VAR}``.

    Raises:
        SpecFileError: Something is wrong; the message names file, line and column.
    """
    documents = read_documents(file, environ)
    if len(documents) > 1:
        raise documents[1].error((), "expected one definition in the file, found several")
    document = documents[0]
    value = document.value
    if not isinstance(value, dict):
        raise document.error((), f"expected a mapping, found {shown(value)}")
    (kind,) = model.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]  # Literal
    for key, expected in (("apiVersion", API_VERSION), ("kind", kind)):
        if key not in value:
            raise document.error((), f"missing key {key!r}")
        if value[key] != expected:
            hint = suggest(str(value[key]), [expected])
            raise document.error((key,), f"unknown {key} {shown(value[key])}{hint}")
    resolve_paths(document, model, (), value, file.parent.absolute())
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = explain(Refused(document, model, (), value), error)
        first = min(problems, key=lambda each: (each.is_consequence, each.error.line)).error
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise SpecFileError(first.message + more, first.file, first.line, first.column) from error
