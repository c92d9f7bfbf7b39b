"""Errors of the actor runtime."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class ActorError(WalleError):
    """Base of the actor runtime's errors."""

    exit_code: ClassVar[int] = 9


class ActorDeadError(ActorError):
    """A message was sent to an actor that has stopped.

    The supervisor starts it again where it may; send to the new reference.
    """

    is_retryable: ClassVar[bool] = True


class AskTimeoutError(ActorError, TimeoutError):
    """An ``ask`` got no answer in time.

    The actor may still handle the message: ask again only what is idempotent.
    """

    is_retryable: ClassVar[bool] = True


class ClusterError(ActorError):
    """Ray is not installed, its cluster cannot be reached, has no room, or other versions.

    The message names which: install the extra, correct ``RAY_ADDRESS``, ask for less, or
    start the cluster from this environment.
    """

    exit_code: ClassVar[int] = 11


class MailboxFullError(ActorError):
    """A bounded mailbox had no room before the time-out.

    The receiver is slower than the sender: send less, or raise the bound.
    """

    is_retryable: ClassVar[bool] = True
