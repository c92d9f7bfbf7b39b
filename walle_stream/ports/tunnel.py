"""The tunnel between devices and cloud: frames up, messages down."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from walle_stream.types import UplinkFrame


class Uplink(Protocol):
    """The device side of the tunnel's way up; thread-safe."""

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Send frames; a frame is durable only after ``acks`` returns its number.

        Blocks while more than the bound of bytes is unacknowledged. Frames of one partition are in
        order.

        Raises:
            TunnelClosedError: The tunnel was closed.
        """

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call; never blocks."""

    def close(self) -> None:
        """Flush frames within the adapter's bound, then close."""


class DeviceTunnel(Uplink, Protocol):
    """The device side of a tunnel whose cloud side is in another program."""

    def relax(self) -> None:
        """End all waits of senders, because the run was asked to stop.

        May be called in a signal's handler. An unsent frame has no acknowledgement, and the
        next run sends it. After an unsent frame, no later frame of its partition is sent.
        """

    @property
    def downlink(self) -> "Downlink":
        """The way down."""


class DownlinkSender(Uplink, Protocol):
    """The cloud side of the tunnel's way down, an ``Uplink`` whose frames are messages.

    A frame's number is its sender's own, ascending within a partition. Its envelope is made by
    ``wire.envelope.encode_downlink``; the ``sender`` in it reveals repetitions.
    """


@runtime_checkable
class HasLog(Protocol):
    """A ``Downlink`` with a remote log, whose messages come late, and which may be replaced.

    In another log positions start again.
    """

    @property
    def log_id(self) -> str:
        """Id of the log of the last received messages, or of a later log; empty if unknown."""

    def is_behind(self, partition: int) -> bool:
        """Return whether messages that existed at a partition's first request may still come."""


class Downlink(Protocol):
    """The device side of the tunnel's way down; thread-safe."""

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages of a partition after a position; never blocks.

        The position is the last one committed with the devices' state. At least one message is
        returned if there is one, whatever its size.
        """

    def release(self, partition: int, position: int) -> None:
        """Allow the tunnel to forget messages up to this position (inclusive)."""
