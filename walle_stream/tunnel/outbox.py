"""The policy in front of an uplink, for features that cannot be sent for a long time.

The outbox in the partitions' databases survives a crash. This module holds the same frames in
memory, and decides which of them are still sent. It drops only frames that the uplink never got,
so a dropped frame was never received. The partition's next commit deletes and counts their rows.
After a crash before that commit, the frames are here again, and are sent or dropped. The receiver
drops a frame that a crash brings back after newer ones. For the receiver a hole in a device's
numbers is a gap, and it never waits for missing features.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from threading import Condition
from typing import Final, NamedTuple

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.errors import EnvelopeError, TunnelClosedError
from walle_stream.ports import DeviceTunnel, Downlink
from walle_stream.types import UplinkFrame
from walle_stream.wire.calls import CALLS_VERSION
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body
from walle_stream.wire.reports import is_reports

_log = logging.getLogger(__name__)

WINDOW_BYTES: Final = 1024 * 1024
"""Most unacknowledged bytes in the uplink; the other frames may still be dropped."""

TELL_MS: Final = 60_000.0
"""Shortest time between two log lines about dropped features."""

_POLL_S: Final = 0.02


class OutboxPolicy(msgspec.Struct, frozen=True):
    """Policy of ``spec.tunnel`` for an outbox that grows."""

    max_bytes: int
    """Bound of the unacknowledged frames of all partitions together."""
    drops_oldest: bool = False
    """Whether the oldest features make room for new ones; otherwise the sender waits."""
    max_age_ms: int | None = None
    """Age above which features are dropped: the partition's newest ingest time minus their
    event time. None for never."""

    @property
    def drops(self) -> bool:
        """Whether the policy ever drops features."""
        return self.drops_oldest or self.max_age_ms is not None


class Shed(NamedTuple):
    """A frame that will not be sent."""

    number: int
    features: int


class _Frame(msgspec.Struct, gc=False):
    serial: int
    number: int
    data: bytes
    features: int
    """0 for calls, which wait for their replies and are never dropped."""
    newest_ms: int
    """Event time of its latest feature; -1 if unknown."""


class LimitedTunnel:
    """A device's tunnel with a policy (``DeviceTunnel``); thread-safe."""

    def __init__(self, tunnel: DeviceTunnel, policy: OutboxPolicy) -> None:
        """Put the policy in front of a tunnel.

        The tunnel's own bound is at least the policy's bytes. It is closed with this object.
        """
        self._tunnel = tunnel
        self._policy = policy
        self._window_bytes = min(WINDOW_BYTES, max(policy.max_bytes // 4, 1))
        self._condition = Condition()
        self._serial = 0
        self._last: dict[int, int] = {}  # last taken number, by partition
        self._waiting: dict[int, dict[int, _Frame]] = {}  # oldest first, by partition
        self._in_flight: dict[int, dict[int, int]] = {}  # bytes by number, by partition
        self._waiting_bytes = self._in_flight_bytes = 0
        self._acks: dict[int, list[int]] = {}
        self._shed: dict[int, list[Shed]] = {}
        self._is_closed = self._is_relaxed = False
        self._left: set[int] = set()
        self._untold = [0, 0]  # frames, features
        self._told_ms = -TELL_MS

    @property
    def downlink(self) -> Downlink:
        """The way down."""
        return self._tunnel.downlink

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Take frames, and wait for room if dropping makes none; see ``Uplink.send``."""
        for frame in frames:
            self._take(*frame)

    def _take(self, partition: int, number: int, frame: bytes) -> None:
        taken = _read(frame, number)
        with self._condition:
            if number <= self._last.get(partition, -1):
                self._forget(partition)  # the partition was reopened, and its outbox comes again
            if self._policy.drops_oldest:
                self._make_room(len(frame))
            while not (self._has_room(len(frame)) or self._is_closed or self._is_relaxed):
                self._condition.wait(_POLL_S)
                self._advance()
            if self._is_closed:
                raise TunnelClosedError(
                    f"the tunnel is closed: frame {number} of partition {partition} stays in the "
                    "outbox"
                )
            if partition in self._left or not self._has_room(len(frame)):
                self._left.add(partition)  # later frames must not arrive before this one
                return
            self._serial += 1
            taken.serial = self._serial
            self._last[partition] = number
            self._waiting.setdefault(partition, {})[number] = taken
            self._waiting_bytes += len(frame)
            self._advance()

    def acks(self, partition: int) -> Iterable[int]:
        """Return new acknowledgements; see ``Uplink.acks``."""
        with self._condition:
            self._advance()
            return self._acks.pop(partition, ())

    def shed(self, partition: int, watermark_ms: int) -> list[Shed]:
        """Drop a partition's frames that are too old; return all dropped since the last call."""
        age_ms = self._policy.max_age_ms
        with self._condition:
            if age_ms is not None:
                for frame in self._expired(partition, watermark_ms - age_ms):
                    self._drop(partition, frame)
            self._tell()
            return self._shed.pop(partition, [])

    def relax(self) -> None:
        """End all waits of senders; see ``DeviceTunnel.relax``."""
        # no lock in a signal's handler; waiting senders poll the flag
        self._is_relaxed = True
        self._tunnel.relax()

    def close(self) -> None:
        """Close the tunnel; unsent frames stay in the outbox."""
        self._is_closed = True
        with self._condition:
            self._told_ms = -TELL_MS
            self._tell()
            self._condition.notify_all()
        self._tunnel.close()

    # Under the lock

    def _has_room(self, size_bytes: int) -> bool:
        held = self._waiting_bytes + self._in_flight_bytes
        return not held or held + size_bytes <= self._policy.max_bytes

    def _make_room(self, size_bytes: int) -> None:
        while not self._has_room(size_bytes):
            oldest = min(self._oldest(), key=lambda head: head[1].serial, default=None)
            if oldest is None:
                return
            self._drop(*oldest)

    def _oldest(self) -> Iterator[tuple[int, _Frame]]:
        for partition, lane in self._waiting.items():
            for frame in lane.values():
                if frame.features:
                    yield partition, frame
                    break

    def _expired(self, partition: int, before_ms: int) -> list[_Frame]:
        shed = []
        for frame in self._waiting.get(partition, {}).values():
            if not frame.features:
                continue
            if not 0 <= frame.newest_ms < before_ms:
                break
            shed.append(frame)
        return shed

    def _drop(self, partition: int, frame: _Frame) -> None:
        del self._waiting[partition][frame.number]
        self._waiting_bytes -= len(frame.data)
        self._shed.setdefault(partition, []).append(Shed(frame.number, frame.features))
        self._untold[0] += 1
        self._untold[1] += frame.features

    def _forget(self, partition: int) -> None:
        for frame in self._waiting.pop(partition, {}).values():
            self._waiting_bytes -= len(frame.data)
        self._shed.pop(partition, None)
        self._acks.pop(partition, None)
        self._last.pop(partition, None)

    def _advance(self) -> None:
        for partition, numbers in self._in_flight.items():
            for number in self._tunnel.acks(partition):
                self._in_flight_bytes -= numbers.pop(number, 0)
                self._acks.setdefault(partition, []).append(number)
        while (first := self._first()) is not None:
            partition, frame = first
            size = len(frame.data)
            if self._in_flight_bytes and self._in_flight_bytes + size > self._window_bytes:
                return
            self._tunnel.send([(partition, frame.number, frame.data)])
            del self._waiting[partition][frame.number]
            self._waiting_bytes -= size
            numbers = self._in_flight.setdefault(partition, {})
            self._in_flight_bytes += size - numbers.get(frame.number, 0)
            numbers[frame.number] = size

    def _first(self) -> tuple[int, _Frame] | None:
        heads = (
            (partition, next(iter(lane.values())))
            for partition, lane in self._waiting.items()
            if lane
        )
        return min(heads, key=lambda head: head[1].serial, default=None)

    def _tell(self) -> None:
        now_ms = monotonic_ms()
        frames, features = self._untold
        if frames and now_ms - self._told_ms >= TELL_MS:
            self._told_ms, self._untold = now_ms, [0, 0]
            _log.warning(
                "%d features in %d frames will not be sent: they were too many or too old for the "
                "outbox (spec.tunnel: onFull, maxAge); they stay among the devices' own features",
                features,
                frames,
            )


def _read(frame: bytes, number: int) -> _Frame:
    features, newest_ms = 0, -1
    try:
        body = decode_uplink(frame).body
        if body[:1] != bytes((CALLS_VERSION,)) and not is_reports(body):
            records = decode_body(body)
            features = len(records)
            times = [record.event_time_ms for record in records]
            newest_ms = -1 if min(times, default=-1) < 0 else max(times)
    except EnvelopeError:
        features = 0  # the receiver refuses and counts the frame
    return _Frame(0, number, frame, features, newest_ms)
