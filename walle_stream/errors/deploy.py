"""Errors of the deployment platform."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class DeployError(WalleError):
    """Base of the errors of the task deployment platform."""

    exit_code: ClassVar[int] = 16


class ConflictError(DeployError):
    """Somebody else changed it first: a branch, a tag, or a release.

    Nothing was changed. Look at what they did, then do yours again on top of it.
    """

    exit_code: ClassVar[int] = 18
    is_retryable: ClassVar[bool] = True


class ForbiddenError(DeployError, PermissionError):
    """Who asks is known, and may not do this, such as a device that speaks for another one.

    Ask as the one whom it is for; nothing was changed.
    """


class GitError(DeployError):
    """git refused, or cannot be run.

    The message ends with git's own line; nothing was changed.
    """


class IdentityError(DeployError):
    """Nobody has proven who asks: no token, or one that is forged, expired, revoked or another's.

    Nothing was done. Get a new token; the message says what is wrong with this one.
    """


class IntegrityError(DeployError):
    """What was received, or is stored, is not what was signed: altered, old, or of another.

    It was not used, what was there before stays. Get it again; where it happens again, look
    at who serves it.
    """

    exit_code: ClassVar[int] = 17


class ProfileError(DeployError, ValueError):
    """A device's profile cannot be read: too long, not of its form, or of an id that no device has.

    Correct what the device sends; docs/deploy has the form.
    """


class ReceiptError(IntegrityError):
    """A device's receipt is not one that this store's release services made, or is too old.

    Its reports are counted apart. The device gets another one with its next check; where it
    happens again, look at the clock of the store, and at who sends the reports.
    """

    def __init__(self, message: str = "", problem: str = "forged") -> None:
        """Keep what is wrong with it.

        ``problem`` is ``forged`` (or of a key that is gone), ``expired``, ``ahead`` of the clock,
        or ``revoked`` (its device is).
        """
        super().__init__(message)
        self.args = (message, problem)
        self.problem = problem


class RefNotFoundError(DeployError, LookupError):
    """There is no such group, scenario, task, version or release.

    The message names what there is.
    """


class ReleaseStateError(DeployError):
    """A release cannot do that where it stands, such as to resume one that was rolled back.

    ``walle release status`` says where it stands, and what can be done.
    """


class ServiceUnreachableError(DeployError, ConnectionError):
    """A release service, a file server or a database does not answer.

    Nothing that runs is touched by that; start it, or correct the address.
    """

    exit_code: ClassVar[int] = 19
    is_retryable: ClassVar[bool] = True


class ServiceBusyError(ServiceUnreachableError):
    """A release service has too much to do, and says when to ask again.

    Devices do so by themselves; where it lasts, start more workers.
    """

    def __init__(self, message: str = "", after_s: float = 5.0) -> None:
        """Keep when to ask again, in seconds."""
        super().__init__(message)
        self.args = (message, after_s)
        self.after_s = after_s
