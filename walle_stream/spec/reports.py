"""``spec.reports``: counts of the results of tasks, made on the devices and sent to the cloud."""

from typing import Annotated

from pydantic import Field, StringConstraints

from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict


class ReportsSpec(Strict):
    """Reports of the pipeline's tasks; a pipeline without this key sends none."""

    every: DurationMs = Field(
        default=10_000, ge=100, description="Shortest time between two reports of a partition."
    )
    scenario: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)
    ] = Field(description="The tasks are reported as SCENARIO/TASK, with their own versions.")
