"""The base of all errors, those that have no family, and those of brokers."""

from typing import ClassVar


class WalleError(Exception):
    """Base of every error raised by walle_stream.

    Catch it to handle all of them; read the message for what to do.
    """

    exit_code: ClassVar[int] = 1
    """Exit status of the ``walle`` command when this error ends it."""

    is_retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by the user."""

    def __init__(self, message: str = "") -> None:
        """Keep the message: one line that names ids, values and the way out."""
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return the message, never the tuple of all fields."""
        return self.message


class CampaignError(WalleError, ValueError):
    """A chaos campaign cannot begin, or go on, as it was asked to.

    Correct the arguments, or give another folder; the message says which.
    """

    exit_code: ClassVar[int] = 2


class ChaosError(WalleError):
    """A run that a chaos campaign killed, or let go on, hung or failed by itself.

    That is a finding: the message names the data directory, which is kept.
    """


class FunctionError(WalleError, ValueError):
    """A function that a pipeline names, a service or a model, cannot be imported.

    Correct the file or module named, or the pipeline's ``spec.services`` and
    ``spec.models``.
    """

    exit_code: ClassVar[int] = 3


class LinkAddressError(WalleError, ValueError):
    """A test link cannot listen at its address: it is taken, or not of this machine.

    Give another; port 0 takes any that is free.
    """

    exit_code: ClassVar[int] = 2


class MessageError(WalleError, ValueError):
    """A message cannot be sent as it was given; the text says what is wrong with it.

    Correct it and send it again: nothing behind it was sent.
    """

    exit_code: ClassVar[int] = 2


class MetricsAddressError(WalleError, ValueError):
    """The address of ``--metrics``, or of a cloud worker's pages, is malformed or taken.

    Give ``:PORT``, or ``--web-port``, with a free port; for ``--metrics`` 0 takes any.
    """

    exit_code: ClassVar[int] = 2


class SpecFileError(WalleError, ValueError):
    """A YAML file (or an override of it) is not a valid definition.

    Correct the file at the place named, ``walle validate FILE`` checks it.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", file: str = "", line: int = 0, column: int = 0) -> None:
        """Keep the place, from line 1 and column 1; 0 when unknown."""
        super().__init__(message)
        self.args = (message, file, line, column)
        self.file = file
        self.line = line
        self.column = column


class StopTimeoutError(WalleError, TimeoutError):
    """A run that was asked to stop did not end in time: a script or a broker does not answer.

    What was committed stays, the rest is done again: run the same command, and correct a
    script that does not end.
    """

    exit_code: ClassVar[int] = 10


class TensorError(WalleError, ValueError):
    """A tensor expression cannot be evaluated: shapes, an operator, or its size.

    The message names the node; correct the expression.
    """


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
