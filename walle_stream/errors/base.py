"""Base class of all errors, errors without a family, and errors of brokers."""

from typing import ClassVar


class WalleError(Exception):
    """Base of every error raised by walle_stream.

    Catch it to handle all of them. The message says what to do.
    """

    exit_code: ClassVar[int] = 1
    """Exit status of the ``walle`` command when this error ends it."""

    is_retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by the user."""

    def __init__(self, message: str = "") -> None:
        """Keep the message: one line that names ids, values and the user's next step."""
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return the message, never the tuple of all fields."""
        return self.message


class CampaignError(WalleError, ValueError):
    """A chaos campaign cannot start or continue with its arguments or folder.

    Correct the arguments, or give another folder; the message says which.
    """

    exit_code: ClassVar[int] = 2


class ChaosError(WalleError):
    """A run in a chaos campaign hung, or failed for a reason other than the kill.

    This is a finding. The message names the data directory, which is kept.
    """


class FunctionError(WalleError, ValueError):
    """The Python function of a service or model of a pipeline cannot be imported.

    Correct the named file or module, or the pipeline's ``spec.services`` and
    ``spec.models``.
    """

    exit_code: ClassVar[int] = 3


class LinkAddressError(WalleError, ValueError):
    """A test link cannot listen: its address is in use, or belongs to another machine.

    Give another address; port 0 takes any free port.
    """

    exit_code: ClassVar[int] = 2


class MessageError(WalleError, ValueError):
    """A message for a device is malformed; the error says what is wrong.

    Correct the message and send it again. No message after it was sent.
    """

    exit_code: ClassVar[int] = 2


class MetricsAddressError(WalleError, ValueError):
    """The address of ``--metrics``, or of a cloud worker's pages, is malformed or in use.

    Give a free port with ``--metrics :PORT`` or ``--web-port``. For ``--metrics``, 0 takes any.
    """

    exit_code: ClassVar[int] = 2


class SpecFileError(WalleError, ValueError):
    """A YAML file (or an override of it) is not a valid definition.

    Correct the file at the named place; ``walle validate FILE`` checks it.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", file: str = "", line: int = 0, column: int = 0) -> None:
        """Keep the place: line and column count from 1, and 0 means unknown."""
        super().__init__(message)
        self.args = (message, file, line, column)
        self.file = file
        self.line = line
        self.column = column


class StopTimeoutError(WalleError, TimeoutError):
    """A run did not stop in time, because a script or a broker does not answer.

    Commits are kept, and the rest is done again: run the same command. Correct a script
    that does not end.
    """

    exit_code: ClassVar[int] = 10


class TensorError(WalleError, ValueError):
    """A tensor expression cannot be evaluated: its shapes, an operator or its size is wrong.

    The message names the node; correct the expression.
    """


class BrokerError(WalleError):
    """A Kafka broker of the tests did not start, or did not carry out a command.

    The message ends with the last lines of the broker's log. The broker's folder is kept.
    """


class BrokerMissingError(BrokerError):
    """This machine cannot provide the kind of broker that a test needs.

    Name a broker in ``WALLE_KAFKA``, start Docker, or install a JDK and Maven. The message
    says what each of these ways lacked.
    """


class BrokerUnreachableError(WalleError, ConnectionError):
    """None of the configured brokers answers, or TLS with a broker fails.

    The message says which. Start the broker, or correct ``brokers`` and ``tls``, and run
    again. No committed data is lost.
    """

    exit_code: ClassVar[int] = 12
    is_retryable: ClassVar[bool] = True
