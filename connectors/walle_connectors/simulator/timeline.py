"""Times of the devices' visits, and the order in which their events arrive.

Time is cut into windows of half an hour. A window belongs to a group of at most ``GROUP_DEVICES``
devices, each of which makes one visit in it. So a window follows from the definition alone. An
offset is a window and a place in it, and a restart makes only that window again.
"""

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.payload import device_part, event_part
from walle_connectors.simulator.session import Happening, Visit
from walle_stream.types import Placing, partition_of

GROUP_DEVICES: Final = 500

WINDOW_MS: Final = 1_800_000

START_MS: Final = 1_767_225_600_000
"""Start of the first window: 2026-01-01 UTC."""

_TOO_LATE_MS: Final = 60_000
_NETWORK_MS: Final = (5, 40)


class Line(NamedTuple):
    """An event when it arrives."""

    ingest_time_ms: int
    device_id: str
    number: int
    """Number of the line within the visit; with the two fields above it orders a window's lines."""
    data: bytes
    """JSON, without the line end."""


class Timeline:
    """All windows of a shop."""

    def __init__(self, model: SimulatorModel) -> None:
        """Take the definition; computes nothing."""
        self._model = model
        self._groups = -(-model.devices // GROUP_DEVICES)
        self.windows = self._groups * model.sessions

    def lines(self, window: int) -> list[Line]:
        """Make the lines of a window, from 0, in the order of arrival."""
        visit, group = divmod(window, self._groups)
        begin_ms = START_MS + window * WINDOW_MS
        lines: list[Line] = []
        for device in range(group, self._model.devices, self._groups):
            lines.extend(self._visit(f"device-{device:07d}", visit, begin_ms))
        lines.sort(key=lambda line: line[:3])
        return lines

    def lines_by_partition(
        self, window: int, partition_count: int, placing: Placing = partition_of
    ) -> list[list[Line]]:
        """Make the lines of a window, from 0, for each partition, in the order of arrival."""
        partitions: list[list[Line]] = [[] for _ in range(partition_count)]
        home = cache(lambda device_id: partitions[placing(device_id, partition_count)])
        for line in self.lines(window):
            home(line.device_id).append(line)
        return partitions

    def _visit(self, device_id: str, visit: int, begin_ms: int) -> Iterator[Line]:
        model = self._model
        size_bytes = model.payload_bytes
        of_device = Random(f"{model.seed}/{device_id}")  # noqa: S311 - repeatable on purpose
        fixed = device_part(of_device, size_bytes // 4) if size_bytes else {}
        random = Random(f"{model.seed}/{device_id}/{visit}")  # noqa: S311 - same
        start_ms = begin_ms + random.randrange(WINDOW_MS // 2)
        number = 0
        for happening in Visit(model, random, visit, start_ms).happenings:
            uid = f"{random.getrandbits(64):016x}"
            payload = (
                {**fixed, **event_part(random, size_bytes - size_bytes // 4)} if size_bytes else {}
            )
            for ingest_ms in self._arrivals(random, happening.time_ms):
                number += 1
                data = _encode(_record(device_id, happening, ingest_ms, uid, payload))
                yield Line(ingest_ms, device_id, number, data)

    def _arrivals(self, random: Random, time_ms: int) -> Iterator[int]:
        model, chance = self._model, random.random()
        ingest_ms = time_ms + random.randint(*_NETWORK_MS)
        if chance < model.lost_order_events:
            yield ingest_ms + _TOO_LATE_MS
            return
        chance -= model.lost_order_events
        if chance < model.late_events:
            yield ingest_ms + random.randint(0, model.lateness_ms)
            return
        yield ingest_ms
        if chance - model.late_events < model.duplicates:
            yield ingest_ms + random.randint(0, model.lateness_ms)


_encode = msgspec.json.Encoder().encode


def _record(
    device_id: str, happening: Happening, ingest_ms: int, uid: str, payload: dict[str, Any]
) -> dict[str, Any]:
    return {
        "device_id": device_id,
        "id": happening.kind,
        "kind": happening.kind,
        "page_id": happening.page,
        "page_instance": happening.instance,
        "event_time_ms": happening.time_ms,
        "ingest_time_ms": ingest_ms,
        "uid": uid,
        "contents": happening.contents,
        "payload": payload,
    }
