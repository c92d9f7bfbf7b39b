"""Files of walle's own events: rows need no mapping, so reading is fast.

JSON Lines: a line is one event with the names of ``walle_stream.events.Event``; other fields
are skipped without being parsed. Packed: columns with the fields for tasks, and a payload per
event that is skipped (``walle_stream.wire.event_blocks``). Events are in the order of arrival.
``walle simulate`` writes both formats.

``lines`` reads lines; ``packed`` reads blocks, which ``blocks`` cuts from the file; ``device``
reads one device's events for its agent.
"""

from pathlib import Path
from typing import Final

from walle_connectors.events.device import DeviceEvents
from walle_connectors.events.model import EventsModel
from walle_connectors.events.source import EventsSource
from walle_stream.reading.parts import PartedSource, parted
from walle_stream.store.objects import open_objects


class EventsConnector:
    """Entry point ``events``."""

    name: Final = "events"
    model: Final = EventsModel

    def open(self, model: EventsModel) -> EventsSource | PartedSource:
        """Return the source of a definition; the file is opened later."""
        return parted(model, open_objects) or EventsSource(model)

    def open_device(
        self, path: Path | None, device_id: str, partition: int, *, follows: bool
    ) -> DeviceEvents:
        """Return the input of one device's agent; it is opened later; see ``DeviceEvents``."""
        return DeviceEvents(path, device_id, partition, follows=follows)


CONNECTOR: Final = EventsConnector()
