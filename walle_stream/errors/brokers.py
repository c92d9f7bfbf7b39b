"""Errors of brokers and the tests' own."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class BrokerError(WalleError):
    """A Kafka broker of the tests did not come up, or did not do what it was told.

    The message ends with its log's last lines; the broker's folder is kept.
    """


class BrokerMissingError(BrokerError):
    """This machine has nothing to make the broker that tests ask for, or none of that kind.

    Give one in ``WALLE_KAFKA``, start Docker, or install a JDK and Maven; the message
    says what each of them lacked.
    """


class BrokerUnreachableError(WalleError, ConnectionError):
    """No broker of those named answers, or its TLS is refused.

    The message says which: start the broker, or correct ``brokers`` and ``tls``.
    Nothing that was committed is lost, run again.
    """

    exit_code: ClassVar[int] = 12
    is_retryable: ClassVar[bool] = True
