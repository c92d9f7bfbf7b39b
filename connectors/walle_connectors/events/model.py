"""The YAML keys of a file of events."""

from typing import Final

from pydantic import Field

from walle_stream.spec.models import PathField, Strict
from walle_stream.spec.scalars import SizeBytes

_MIB: Final = 2**20


class EventsModel(Strict):
    """Where the file is."""

    connector: str = "events"
    path: PathField = Field(description="JSON Lines, one event each; gzip is recognised.")
    max_record_bytes: SizeBytes = Field(
        default=_MIB, ge=64, le=2**30, description="A longer line is a dead letter."
    )
