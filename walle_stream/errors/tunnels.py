"""Errors of the device-cloud tunnel."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class TunnelError(WalleError):
    """Base of the errors of the device-cloud tunnel."""

    exit_code: ClassVar[int] = 9


class CloudStalledError(TunnelError):
    """The cloud side had records to process and made no progress for too long.

    Start it again: it goes on from what was committed, and nothing is lost.
    """

    exit_code: ClassVar[int] = 14
    is_retryable: ClassVar[bool] = True


class EnvelopeError(TunnelError, ValueError):
    """A frame of the tunnel is cut, altered or of an unknown version.

    The receiver refuses it; check that both sides run versions that meet.
    """


class SinkError(TunnelError):
    """A sink of features (``spec.sinks``) takes none now: it is away, or refuses them.

    They wait on the cloud side; the message says what to correct.
    """

    is_retryable: ClassVar[bool] = True


class TopicError(TunnelError):
    """A topic is missing, has another number of partitions, or settings that do not fit.

    ``walle topics FILE`` says what is expected, with ``--create`` it makes what is missing.
    """

    exit_code: ClassVar[int] = 13

    def __init__(self, message: str = "", topic: str = "") -> None:
        """Keep the topic."""
        super().__init__(message)
        self.args = (message, topic)
        self.topic = topic


class TunnelClosedError(TunnelError):
    """The tunnel was used after it was closed, or the other side is gone.

    Frames that were not acknowledged stay in the outbox and are sent again.
    """

    is_retryable: ClassVar[bool] = True
