"""The way between devices and cloud: frames up, messages down."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from walle_stream.types import UplinkFrame


class Uplink(Protocol):
    """The device side of the tunnel's way up. Thread-safe."""

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Hand frames over; one is durable only when ``acks`` names it.

        Blocks while more than the bound of bytes is unacknowledged. Frames of one partition are in
        order.

        Raises:
            TunnelClosedError: The tunnel was closed.
        """

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call; never blocks."""

    def close(self) -> None:
        """Flush what can be flushed within the adapter's bound, then close."""


class DeviceTunnel(Uplink, Protocol):
    """The device side of a tunnel whose cloud side is another program's."""

    def relax(self) -> None:
        """Let no sender wait any more, because the run was asked to stop.

        May be called in a signal's handler. What is not sent has no acknowledgement and is
        sent by the next run; of a partition nothing is sent behind what was not.
        """

    @property
    def downlink(self) -> "Downlink":
        """The way down."""


class DownlinkSender(Uplink, Protocol):
    """The cloud side of the tunnel's way down: frames are messages, and as of ``Uplink``.

    A frame's number is its sender's own, ascending within a partition; its envelope is of
    ``wire.envelope.encode_downlink``, whose ``sender`` tells what was sent twice.
    """


@runtime_checkable
class HasLog(Protocol):
    """A ``Downlink`` whose log is elsewhere: it comes with delay, and may be replaced by another.

    In another one positions begin anew.
    """

    @property
    def log_id(self) -> str:
        """Which log the messages received last are of, or one behind it; empty while unknown."""

    def is_behind(self, partition: int) -> bool:
        """Return whether more may come of what was there when a partition was first asked for."""


class Downlink(Protocol):
    """The device side of the tunnel's way down. Thread-safe."""

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages of a partition behind a position; never blocks.

        The position is the last one committed with the devices' state. At least one message is
        returned if there is one, whatever its size.
        """

    def release(self, partition: int, position: int) -> None:
        """Allow the tunnel to forget messages up to this position (inclusive)."""
