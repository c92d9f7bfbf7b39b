"""Where the reports of devices go on the cloud side, and what devices show with them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class ReportFrame(NamedTuple):
    """A frame of reports, as it came out of the tunnel."""

    incarnation: str
    """Of the sender's data directory."""
    partition: int
    """The sender's."""
    number: int
    """Of the frame in the partition's outbox: ascending, with gaps. With both above it names
    the frame, which may come again."""
    body: bytes
    """See ``walle_stream.wire.reports``; not trusted."""


class Proof(NamedTuple):
    """What a device has to show for its report of a version; all empty where it has nothing."""

    receipt: str = ""
    """Goes up as it is."""
    release: str = ""
    """That the receipt names."""
    group: str = ""
    """Of that release."""


type ProofOf = Callable[[str, str, str], Proof]
"""Says what a device (id) has to show for a task (as the cloud knows it) and a version. Called in
the hosts' threads, once for each device and report: it may block for a look at a file."""


class ReportSink(Protocol):
    """Takes reports. One thread, the cloud side's."""

    def take(self, frames: Sequence[ReportFrame]) -> object:
        """Take frames; blocks until they are as durable as the sink makes them.

        Called before the tunnel is told that they arrived: after a death frames come again,
        which the sink has to notice. Those of one partition come in order. What cannot be
        decoded is the sink's to count.

        Args:
            frames: At least one. What is returned nobody looks at.

        Raises:
            WalleError: The cloud side fails and is restarted: all of them come again. A sink
                that the features should not wait for keeps that to itself.
        """
