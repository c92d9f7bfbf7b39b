"""A policy in a file of its own."""

from typing import Literal

from pydantic import Field

from walle_deploy.policy.model import Policy
from walle_stream.spec.models import Metadata
from walle_stream.spec.strict import Strict


class PolicyDefinition(Strict):
    """A file of ``kind: Policy``, with the content of a release's ``spec.policy``."""

    api_version: Literal["walle/v1"] = Field(description="Version of the format.")
    kind: Literal["Policy"] = Field(description="Kind of the document.")
    metadata: Metadata = Field(description="Name of the policy.")
    spec: Policy = Field(description="The policy.")
