"""Errors of the deployment platform."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class DeployError(WalleError):
    """Base of the errors of the task deployment platform."""

    exit_code: ClassVar[int] = 16


class ConflictError(DeployError):
    """Another user changed the branch, tag or release first.

    This change was not made. Look at the other change, then repeat yours on top of it.
    """

    exit_code: ClassVar[int] = 18
    is_retryable: ClassVar[bool] = True


class ForbiddenError(DeployError, PermissionError):
    """A known caller may not do this, such as a device that sends for another device.

    Use the identity to which the request belongs. Nothing was changed.
    """


class GitError(DeployError):
    """Git refused a command, or cannot be run.

    The message ends with git's own line. Nothing was changed.
    """


class IdentityError(DeployError):
    """A caller's token is missing, forged, expired, revoked or of another caller.

    Nothing was done. Get a new token. The message says what is wrong with this one.
    """


class IntegrityError(DeployError):
    """A received or stored file is not the signed one: altered, old, or meant for another use.

    The file was not used, and the previous one stays. Get it again. If the error comes back,
    check the server of the file.
    """

    exit_code: ClassVar[int] = 17


class ProfileError(DeployError, ValueError):
    """A device's profile is too long, malformed, or has an id that no device can have.

    Correct the profile that the device sends. docs/deploy describes its form.
    """


class ReceiptError(IntegrityError):
    """A device's receipt was not made by this store's release services, or is too old.

    Its reports are counted apart. The device gets another receipt with its next check. If the
    error comes back, check the clock of the store, and the sender of the reports.
    """

    def __init__(self, message: str = "", problem: str = "forged") -> None:
        """Keep the kind of problem.

        ``problem`` is ``forged`` (also for a key that was removed), ``expired``, ``ahead`` of the
        clock, or ``revoked`` (the device is revoked).
        """
        super().__init__(message)
        self.args = (message, problem)
        self.problem = problem


class RefNotFoundError(DeployError, LookupError):
    """A group, scenario, task, version or release does not exist.

    The message names the existing ones.
    """


class ReleaseStateError(DeployError):
    """The state of a release forbids a command, such as to resume after a rollback.

    ``walle release status`` shows the state and the commands that it allows.
    """


class ServiceUnreachableError(DeployError, ConnectionError):
    """A release service, a file server or a database does not answer.

    Running tasks are not affected. Start the missing service, or correct its address.
    """

    exit_code: ClassVar[int] = 19
    is_retryable: ClassVar[bool] = True


class ServiceBusyError(ServiceUnreachableError):
    """A release service is overloaded, and says when to ask again.

    Devices ask again by themselves. If the overload lasts, start more workers.
    """

    def __init__(self, message: str = "", after_s: float = 5.0) -> None:
        """Keep the time in seconds until the next request."""
        super().__init__(message)
        self.args = (message, after_s)
        self.after_s = after_s
