"""The YAML keys of a file of events."""

from typing import Final

from pydantic import Field

from walle_stream.spec.paths import InputField
from walle_stream.spec.scalars import SizeBytes
from walle_stream.spec.strict import Strict

_MIB: Final = 2**20


class EventsModel(Strict):
    """The path of the file; its first bytes tell which of the two formats it has."""

    connector: str = "events"
    path: InputField = Field(
        description="JSON Lines or packed events; gzip is detected; or parts: a folder or URL."
    )
    max_record_bytes: SizeBytes = Field(
        default=_MIB, ge=64, le=2**30, description="A longer line or payload is a dead letter."
    )
