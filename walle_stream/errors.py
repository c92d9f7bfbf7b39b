"""The one error tree of walle_stream.

Every error that leaves the library is one of these. The tree (a test holds it
against the classes)::

    WalleError
    ├─ BrokerUnreachableError(ConnectionError)
    ├─ CampaignError(ValueError)
    ├─ ChaosError
    ├─ FunctionError(ValueError)
    ├─ LinkAddressError(ValueError)
    ├─ MetricsAddressError(ValueError)
    ├─ SpecFileError(ValueError)
    ├─ StopTimeoutError(TimeoutError)
    ├─ TensorError(ValueError)
    ├─ BrokerError
    │  └─ BrokerMissingError
    ├─ ActorError
    │  ├─ ActorDeadError
    │  ├─ AskTimeoutError(TimeoutError)
    │  ├─ ClusterError
    │  └─ MailboxFullError
    ├─ SourceError
    │  ├─ SourceChangedError
    │  ├─ SourceFormatError(ValueError)
    │  ├─ SourceMovedError
    │  └─ SourceNotFoundError(FileNotFoundError)
    ├─ VmError
    │  ├─ FrameError(ValueError)
    │  ├─ PackageError(ValueError)
    │  ├─ ScriptError
    │  ├─ StuckScriptError
    │  ├─ VmClosedError
    │  ├─ VmCrashedError
    │  ├─ VmForkError
    │  └─ VmStartError
    ├─ StoreError
    │  ├─ FormatVersionError
    │  ├─ StoreCorruptedError
    │  ├─ StoreFullError
    │  ├─ StoreLockedError
    │  ├─ StoreMissingError(FileNotFoundError)
    │  └─ TransactionStateError
    └─ TunnelError
       ├─ CloudStalledError
       ├─ TopicError
       ├─ TunnelClosedError
       └─ EnvelopeError(ValueError)
          └─ EpochOverError

Rules: the message names the ids and the values and ends with what the user can
do; the same facts are attributes; every field goes to ``super().__init__`` with
a default, so that an error survives pickling (VM, Ray and Kafka edges carry
them); ``exit_code`` is what the command line exits with; ``is_retryable`` is
read by the supervisor and the tunnel.
"""

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
        """Keep the message.

        Args:
            message: One line that names ids, values and the way out.
        """
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return the message, never the tuple of all fields."""
        return self.message


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
        """Keep the place.

        Args:
            message: The whole line shown to the user, place included.
            file: The file's name as the user gave it, or ``--set``.
            line: Line, from 1; 0 when unknown.
            column: Column, from 1; 0 when unknown.
        """
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
    """Ray is not installed, its cluster cannot be reached, or it runs other versions.

    The message names which: install the extra, correct ``RAY_ADDRESS``, or start the
    cluster from this environment.
    """

    exit_code: ClassVar[int] = 11


class MailboxFullError(ActorError):
    """A bounded mailbox had no room before the time-out.

    The receiver is slower than the sender: send less, or raise the bound.
    """

    is_retryable: ClassVar[bool] = True


class SourceError(WalleError):
    """Base of the errors of event sources.

    The source could not be read on; nothing that was committed is lost.
    """

    exit_code: ClassVar[int] = 4


class SourceChangedError(SourceError):
    """The source is not the one that the data directory was made from.

    Give the same source as before, or a new ``--data-dir``.
    """


class SourceFormatError(SourceError, ValueError):
    """A file of packed events is not what its head says, or an event does not fit one.

    Write the file again with the tool that made it; what was read before is kept.
    """


class SourceMovedError(SourceError):
    """A partition was opened in a later generation than the one that it was placed by.

    Its reader catches it: either this host was put out of its group and does not know, or
    the group was made anew and counts from 1 again.
    """


class SourceNotFoundError(SourceError, FileNotFoundError):
    """The source's file does not exist or cannot be opened.

    Correct ``spec.source.path``.
    """


class VmError(WalleError):
    """Base of the errors of the virtual machines that run task scripts."""

    exit_code: ClassVar[int] = 5


class FrameError(VmError, ValueError):
    """A guest wrote a result frame that is cut, too long or malformed.

    The batch is refused as a whole; report the task's script.
    """


class PackageError(VmError, ValueError):
    """A task package is altered, cut, or not for this interpreter, or cannot be built.

    Build it again with ``walle task build``; the message says for which Python.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", file: str = "", member: str = "") -> None:
        """Keep the place.

        Args:
            message: The whole line shown to the user, place included.
            file: The package's file name as the user gave it.
            member: The part of the package; empty when it is the whole.
        """
        super().__init__(message)
        self.args = (message, file, member)
        self.file = file
        self.member = member


class ScriptError(VmError):
    """A task's script cannot be loaded: missing, not Python, or no ``run``.

    Correct the script at the file and line named.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", task: str = "", file: str = "", line: int = 0) -> None:
        """Keep the place.

        Args:
            message: The whole line shown to the user, place included.
            task: Name of the task.
            file: The script's file name as the user gave it.
            line: Line, from 1; 0 when unknown.
        """
        super().__init__(message)
        self.args = (message, task, file, line)
        self.task = task
        self.file = file
        self.line = line


class StuckScriptError(VmError):
    """A script loops inside C code, where nothing can stop it.

    The process ends, and the next one goes on without that task on that
    device; correct the script, then delete ``quarantine.jsonl`` from the data
    directory.
    """


class VmClosedError(VmError):
    """A call came after the pool of VMs was closed.

    Open a new pool; a run does so when it starts.
    """


class VmCrashedError(VmError):
    """A virtual machine ended a call without its completion mark.

    The machine is destroyed and the batch is run again in a new one.
    """

    is_retryable: ClassVar[bool] = True


class VmForkError(VmError):
    """A process with virtual machines was to be forked; the child would have died at once.

    Use ``subprocess`` or multiprocessing's 'spawn', or fork before the pool is opened.
    """


class VmStartError(VmError):
    """An isolated interpreter could not be made on this Python.

    Use CPython 3.13 or newer; the message says which part is missing.
    """


class StoreError(WalleError):
    """Base of the errors of the data directory and its databases."""

    exit_code: ClassVar[int] = 6


class FormatVersionError(StoreError):
    """The data directory was written in a format that this version cannot read.

    Use the version of walle_stream that wrote it, or a new ``--data-dir``.
    """


class StoreCorruptedError(StoreError):
    """A database or one of its rows is damaged.

    Restore the directory from a copy, or start again with a new one.
    """


class StoreFullError(StoreError):
    """The disk is full: the last commit was refused as a whole.

    Free some space and run the same command again: it continues.
    """

    exit_code: ClassVar[int] = 8


class StoreLockedError(StoreError):
    """Another process has the data directory open.

    Stop that process, or give another ``--data-dir``.
    """

    exit_code: ClassVar[int] = 7
    is_retryable: ClassVar[bool] = True


class StoreMissingError(StoreError, FileNotFoundError):
    """The directory given is not a data directory.

    ``walle run`` makes one; check the path of ``--data-dir``.
    """


class TransactionStateError(StoreError):
    """A transaction was used after it was committed or dropped.

    A bug of the caller: begin a new transaction for every batch.
    """


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


class EpochOverError(EnvelopeError):
    """A record came from a host that lost its partition to another one.

    Nothing is to be done: the partition's owner sends what was not acknowledged.
    """


class TopicError(TunnelError):
    """A topic is missing, has another number of partitions, or settings that do not fit.

    ``walle topics FILE`` says what is expected, with ``--create`` it makes what is missing.
    """

    exit_code: ClassVar[int] = 13

    def __init__(self, message: str = "", topic: str = "") -> None:
        """Keep the topic.

        Args:
            message: The whole line shown to the user.
            topic: Its name.
        """
        super().__init__(message)
        self.args = (message, topic)
        self.topic = topic


class TunnelClosedError(TunnelError):
    """The tunnel was used after it was closed, or the other side is gone.

    Frames that were not acknowledged stay in the outbox and are sent again.
    """

    is_retryable: ClassVar[bool] = True
