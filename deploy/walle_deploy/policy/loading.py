"""A policy alone in a file."""

from typing import Literal

from pydantic import Field

from walle_deploy.policy.model import Policy
from walle_stream.spec.models import Metadata
from walle_stream.spec.strict import Strict


class PolicyDefinition(Strict):
    """A file of ``kind: Policy``: what ``spec.policy`` of a release is, alone in a file."""

    api_version: Literal["walle/v1"] = Field(description="Version of the format.")
    kind: Literal["Policy"] = Field(description="What this is.")
    metadata: Metadata = Field(description="Who it is.")
    spec: Policy = Field(description="The policy.")
