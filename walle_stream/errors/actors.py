"""Errors of the actor runtime."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class ActorError(WalleError):
    """Base of the actor runtime's errors."""

    exit_code: ClassVar[int] = 9


class ActorDeadError(ActorError):
    """A message was sent to an actor that has stopped.

    The supervisor restarts the actor if its policy allows; send to the new reference.
    """

    is_retryable: ClassVar[bool] = True


class AskTimeoutError(ActorError, TimeoutError):
    """An ``ask`` got no answer before its timeout.

    The actor may still handle the message: repeat the ``ask`` only if it is idempotent.
    """

    is_retryable: ClassVar[bool] = True


class ClusterError(ActorError):
    """Ray is not installed, or its cluster is unreachable, full, or of other versions.

    The message names the cause. Install the extra, correct ``RAY_ADDRESS``, request fewer
    resources, or start the cluster from this environment.
    """

    exit_code: ClassVar[int] = 11


class MailboxFullError(ActorError):
    """A bounded mailbox stayed full until the timeout.

    The receiver is slower than the sender: send fewer messages, or raise the bound.
    """

    is_retryable: ClassVar[bool] = True
