"""Errors of the device-cloud tunnel."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class TunnelError(WalleError):
    """Base of the errors of the device-cloud tunnel."""

    exit_code: ClassVar[int] = 9


class CloudStalledError(TunnelError):
    """The cloud side had records to process, and made no progress for too long.

    Restart it: it continues from the last commit, and nothing is lost.
    """

    exit_code: ClassVar[int] = 14
    is_retryable: ClassVar[bool] = True


class EnvelopeError(TunnelError, ValueError):
    """A frame of the tunnel is truncated, altered or of an unknown version.

    The receiver refuses the frame. Check that both sides run compatible versions.
    """


class SinkError(TunnelError):
    """A sink of features (``spec.sinks``) is unreachable, or refuses the features.

    The features wait on the cloud side. The message says what to correct.
    """

    is_retryable: ClassVar[bool] = True


class TopicError(TunnelError):
    """A topic is missing, or its number of partitions or its settings are wrong.

    ``walle topics FILE`` shows the expected topics; ``--create`` makes the missing ones.
    """

    exit_code: ClassVar[int] = 13

    def __init__(self, message: str = "", topic: str = "") -> None:
        """Keep the topic."""
        super().__init__(message)
        self.args = (message, topic)
        self.topic = topic


class TunnelClosedError(TunnelError):
    """The tunnel was used after it was closed, or the other side ended.

    Unacknowledged frames stay in the outbox and are sent again.
    """

    is_retryable: ClassVar[bool] = True
