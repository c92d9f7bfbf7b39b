"""Definitions of the platform's own kinds, with the places of what is wrong in them.

As ``walle_stream.spec.loader`` does for tasks and pipelines: the same YAML, the same
messages with file, line and column.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from walle_deploy.policy.model import Policy
from walle_stream.spec.models import Metadata
from walle_stream.spec.single import load_single
from walle_stream.spec.strict import Strict


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
    (kind,) = model.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]  # Literal
    return load_single(file, kind, model, environ, file.parent.absolute())
