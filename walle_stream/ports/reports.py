"""The sink for reports of devices on the cloud side, and the devices' proofs for reports."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class ReportFrame(NamedTuple):
    """A frame of reports from the tunnel."""

    incarnation: str
    """Incarnation of the sender's data directory."""
    partition: int
    """Partition of the sender."""
    number: int
    """Number of the frame in the partition's outbox: ascending, with gaps. With both fields
    above it identifies the frame, which may come again."""
    body: bytes
    """Untrusted body; see ``walle_stream.wire.reports``."""


class Proof(NamedTuple):
    """A device's proof for its report of a version; all fields are empty without a proof."""

    receipt: str = ""
    """Receipt, sent up unchanged."""
    release: str = ""
    """Release in the receipt."""
    group: str = ""
    """Group of that release."""


type ProofOf = Callable[[str, str, str], Proof]
"""Returns the proof of a device (id) for a task (by the cloud's name) and a version. Called in the
hosts' threads, once for each device and report; it may block to read a file."""


class ReportSink(Protocol):
    """Sink of reports, for the cloud side's thread."""

    def take(self, frames: Sequence[ReportFrame]) -> object:
        """Take frames; blocks until they are as durable as the sink makes them.

        This is called before the tunnel learns that the frames arrived. So frames come again
        after a crash, and the sink must notice repetitions. Frames of one partition come in
        order. The sink counts frames that cannot be decoded.

        Args:
            frames: At least one frame. The result is ignored.

        Raises:
            WalleError: The cloud side fails and is restarted, and all frames come again. A
                sink for which features should not wait must not raise.
        """
