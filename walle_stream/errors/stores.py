"""Errors of the store on disk."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class StoreError(WalleError):
    """Base of the errors of the data directory and its databases."""

    exit_code: ClassVar[int] = 6


class EpochTakenError(StoreError):
    """Another owner claimed a partition's epoch, or a later one; this process is not the owner.

    No action is needed: the other owner continues.
    """

    def __init__(self, message: str = "", epoch: int = 0) -> None:
        """Keep the highest claimed epoch."""
        super().__init__(message)
        self.args = (message, epoch)
        self.epoch = epoch


class FormatVersionError(StoreError):
    """The data directory has a format that this version cannot read.

    Use the version of walle_stream that wrote it, or a new ``--data-dir``.
    """


class StoreCorruptedError(StoreError):
    """A database or one of its rows is damaged.

    Restore the directory from a copy, or start again with a new one.
    """


class StoreFullError(StoreError):
    """The disk is full, and the last commit was refused as a whole.

    Free some space, then run the same command again to continue.
    """

    exit_code: ClassVar[int] = 8


class StoreLockedError(StoreError):
    """Another process has the data directory open.

    Stop that process, or give another ``--data-dir``.
    """

    exit_code: ClassVar[int] = 7
    is_retryable: ClassVar[bool] = True


class StoreMissingError(StoreError, FileNotFoundError):
    """The given directory is not a data directory.

    ``walle run`` makes a data directory. Check the path of ``--data-dir``.
    """


class StoreUnreachableError(StoreError, ConnectionError):
    """The object store of the snapshots does not answer, or answers incompletely.

    No committed data is lost. Run again when the store answers, or correct its address.
    """

    exit_code: ClassVar[int] = 12
    is_retryable: ClassVar[bool] = True


class TransactionStateError(StoreError):
    """A transaction was used after it was committed or dropped.

    This is a bug of the caller: begin a new transaction for every batch.
    """


class MalformedRowError(StoreError):
    """A row that a script made is not well-formed JSON, and was left out.

    All other rows were returned before. Such a row comes from an earlier version or from another
    program. Delete the device's data, or start again with a new directory.
    """

    def __init__(
        self,
        message: str = "",
        partition: int = -1,
        device_id: str = "",
        task: str = "",
        number: int = 0,
        count: int = 0,
    ) -> None:
        """Keep the place of the first such row, and the number of such rows.

        Partition -1 means no partition, an empty task means a message of the cloud, and number 0
        means a row of the state.
        """
        super().__init__(message)
        self.args = (message, partition, device_id, task, number, count)
        self.partition = partition
        self.device_id = device_id
        self.task = task
        self.number = number
        self.count = count
