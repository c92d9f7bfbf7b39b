"""Definitions of the platform's own kinds, with the places of what is wrong in them.

As ``walle_stream.spec.loader`` does for tasks and pipelines: the same YAML, the same
messages with file, line and column.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, ValidationError

from walle_deploy.policy.model import Policy
from walle_stream.errors import SpecFileError
from walle_stream.spec.annotations import resolve_paths
from walle_stream.spec.messages import Refused, explain
from walle_stream.spec.models import Metadata
from walle_stream.spec.nodes import read_documents
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


class PolicyOf(NamedTuple):
    """Whose policy it is."""

    policy: Policy
    task: str
    """Of the release; empty of a file that holds a policy alone."""
    version: str
    name: str
    """``metadata.name``, which is the salt of the release's shares until it is created."""


def load_policy(file: Path, environ: Mapping[str, str] = os.environ) -> PolicyOf:
    """Load the policy of a release that is defined in a file, or one that stands alone.

    Nothing else of the release is looked at.

    Args:
        file: YAML of ``kind: Release`` or ``kind: Policy``.
        environ: For ``${VAR}``.

    Raises:
        SpecFileError: The policy is wrong, or the file holds neither.
    """
    document = read_documents(file, environ)[0]
    value = document.value if isinstance(document.value, dict) else {}
    spec, metadata = value.get("spec"), value.get("metadata")
    if value.get("kind") not in {"Release", "Policy"} or not isinstance(spec, dict):
        raise document.error((), "expected kind Release or Policy, with spec")
    base = ("spec", "policy") if value["kind"] == "Release" else ("spec",)
    plain = spec.get("policy", {}) if value["kind"] == "Release" else spec
    policy = _validated(Policy, Refused(document, Policy, base, plain), file)
    about = metadata if isinstance(metadata, dict) else {}
    release = spec if value["kind"] == "Release" else {}
    return PolicyOf(
        policy,
        str(release.get("task", "")),
        str(release.get("version", "")),
        str(about.get("name", file.stem)),
    )


def _validated[M: Strict](model: type[M], refused: Refused, file: Path) -> M:
    document, _, base, value = refused[:4]
    resolve_paths(document, model, base, value, file.parent.absolute())
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = explain(refused, error)
        first = min(problems, key=lambda each: (each.is_consequence, each.error.line)).error
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise SpecFileError(first.message + more, first.file, first.line, first.column) from error
