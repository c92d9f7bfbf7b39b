"""The device side of the tunnel for one partition: outbox in, acknowledgements out.

The outbox is in the partition's database. A frame enters it in the commit that
made it, and leaves it in a later commit, after its acknowledgement. So a crash at
any moment loses nothing, and the receiver drops a frame that is sent twice.
"""

from collections.abc import Iterable, Sequence
from threading import Event as Flag

from walle_stream.clock import monotonic_ms
from walle_stream.faults import crash_point
from walle_stream.ports import Uplink
from walle_stream.tunnel.outbox import LimitedTunnel, Shed
from walle_stream.types import UplinkFrame
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink, uplink_size_bytes

_POLL_S = 0.005


class UplinkSession:
    """Bookkeeping of the frames in flight, for the device host's thread."""

    def __init__(
        self,
        uplink: Uplink,
        partition: int,
        epoch: int,
        incarnation: str,
        outbox: Iterable[tuple[int, bytes]] = (),
    ) -> None:
        """Open the session and send the frames of the outbox again; may block.

        The epoch is higher than any before. The outbox has (number, body) of the unacknowledged
        frames.
        """
        self._uplink = uplink
        self._partition = partition
        self._sender = (partition, epoch, incarnation)
        self._in_flight: dict[int, int] = {}
        self._acknowledged: list[int] = []
        self._limits = uplink if isinstance(uplink, LimitedTunnel) else None
        self._shed: list[Shed] = []
        self._watermark_ms = -1
        self.in_flight_bytes = 0
        """Bytes of the unacknowledged frames, envelopes included."""
        for number, body in outbox:
            self.send([self.frame(number, body)])

    def frame(self, number: int, body: bytes) -> UplinkFrame:
        """Make a frame of a committed body of the outbox; from now on it is in flight."""
        envelope = UplinkEnvelope(*self._sender, number, body)
        self._in_flight[number] = uplink_size_bytes(body)
        self.in_flight_bytes += self._in_flight[number]
        return self._partition, number, encode_uplink(envelope)

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Send frames; blocks while the tunnel has too much in flight (back-pressure).

        The frames may also belong to other sessions that share the uplink.
        """
        if frames:
            crash_point("send.before")
            self._uplink.send(frames)
            crash_point("send.after")

    def size_bytes(self, body: bytes) -> int:
        """Return the bytes of a body on the way up, envelope included."""
        return uplink_size_bytes(body)

    def pump(self) -> None:
        """Note acknowledged and dropped frames; never blocks."""
        for number in self._uplink.acks(self._partition):
            size_bytes = self._in_flight.pop(number, None)
            if size_bytes is not None:
                self.in_flight_bytes -= size_bytes
                self._acknowledged.append(number)
        if self._limits is not None:
            for frame in self._limits.shed(self._partition, self._watermark_ms):
                self.in_flight_bytes -= self._in_flight.pop(frame.number, 0)
                self._shed.append(frame)

    def collect(self) -> list[int]:
        """Return the frames whose rows the next commit deletes, each once."""
        self.pump()
        if not self._acknowledged:
            return []
        crash_point("ack.before")
        acknowledged, self._acknowledged = self._acknowledged, []
        return acknowledged

    def shed(self, watermark_ms: int) -> list[Shed]:
        """Return the dropped frames, each once; the next commit deletes their rows."""
        self._watermark_ms = watermark_ms
        self.pump()
        numbers, self._shed = self._shed, []
        return numbers

    def flush(self, deadline_ms: float) -> bool:
        """Block until the monotonic deadline; return whether all frames are acknowledged."""
        self.pump()
        tick = Flag()
        while self._in_flight and monotonic_ms() < deadline_ms:
            tick.wait(_POLL_S)
            self.pump()
        return not self._in_flight
