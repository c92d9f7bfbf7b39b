"""Measures the payloads of a simulated shop, from the lines as they were written.

So that nobody has to believe how they are made: a member of a payload counts as
changing in an event when its JSON differs from that of the same device's event
before. Knows nothing of how a payload is made.
"""

from typing import Final

import msgspec
import zstandard

BATCH_LINES: Final = 1_000
"""Payloads compressed together."""


class _Event(msgspec.Struct):
    device_id: str
    payload: msgspec.Raw


class MemberReport(msgspec.Struct):
    """A member of the payload's JSON object, over all measured events."""

    bytes: int = 0
    """JSON with its name and the comma behind it."""
    changing_bytes: int = 0
    """Of events in which it differs from the device's event before."""


class PayloadReport(msgspec.Struct):
    """What was measured."""

    events: int = 0
    """With an event of their device before them: only these are measured."""
    bytes: int = 0
    """JSON of their payloads."""
    changing_bytes: int = 0
    packed_bytes: int = 0
    """The same payloads as zstd frames of ``BATCH_LINES``, level 1."""
    members: dict[str, MemberReport] = {}

    @property
    def changing_share(self) -> float:
        """Share of the payloads' bytes that changes with every event."""
        return self.changing_bytes / self.bytes if self.bytes else 0.0

    @property
    def packed_share(self) -> float:
        """What a compressor leaves of them."""
        return self.packed_bytes / self.bytes if self.bytes else 0.0


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_payload = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class PayloadMeter:
    """Takes lines in the order of arrival. One thread."""

    def __init__(self) -> None:
        """Begin."""
        self._report = PayloadReport()
        self._before: dict[str, dict[str, bytes]] = {}
        self._batch: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Measure a line: one event, JSON."""
        event = _decode_event(line)
        payload = {name: bytes(raw) for name, raw in _decode_payload(event.payload).items()}
        before = self._before.get(event.device_id)
        self._before[event.device_id] = payload
        if before is None or not payload:
            return
        report = self._report
        report.events += 1
        report.bytes += len(event.payload)
        for name, value in payload.items():
            member = report.members.get(name)
            if member is None:
                member = report.members[name] = MemberReport()
            size = len(name) + len(value) + 4  # quotes, colon, comma
            member.bytes += size
            if before.get(name) != value:
                member.changing_bytes += size
                report.changing_bytes += size
        self._batch.append(bytes(event.payload))
        if len(self._batch) == BATCH_LINES:
            self._pack()

    def report(self) -> PayloadReport:
        """Return what was measured so far."""
        self._pack()
        return self._report

    def _pack(self) -> None:
        if self._batch:
            data = b"\n".join(self._batch)
            self._report.packed_bytes += len(zstandard.ZstdCompressor(level=1).compress(data))
            self._batch = []
