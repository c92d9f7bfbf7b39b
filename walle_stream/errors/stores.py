"""Errors of the store on disk."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class StoreError(WalleError):
    """Base of the errors of the data directory and its databases."""

    exit_code: ClassVar[int] = 6


class EpochTakenError(StoreError):
    """A partition's epoch, or a later one, was claimed by somebody else: this owner is none.

    Nothing is to be done: whoever claimed it goes on.
    """

    def __init__(self, message: str = "", epoch: int = 0) -> None:
        """Keep the highest epoch that was claimed."""
        super().__init__(message)
        self.args = (message, epoch)
        self.epoch = epoch


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


class StoreUnreachableError(StoreError, ConnectionError):
    """No object store answers at the address of the snapshots, or only some of what it should.

    Nothing that was committed is lost: run again when it is there, or correct the address.
    """

    exit_code: ClassVar[int] = 12
    is_retryable: ClassVar[bool] = True


class TransactionStateError(StoreError):
    """A transaction was used after it was committed or dropped.

    A bug of the caller: begin a new transaction for every batch.
    """


class MalformedRowError(StoreError):
    """A row holds what a script made and what is not well-formed JSON: it was left out.

    All other rows were given before. Such a row was written by an earlier version, or by another
    hand: delete the device's data, or start again with a new directory.
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
        """Keep where the first such row is, and how many there are.

        Partition -1 stands for none, an empty task for a message of the cloud, number 0 for a row
        of the state.
        """
        super().__init__(message)
        self.args = (message, partition, device_id, task, number, count)
        self.partition = partition
        self.device_id = device_id
        self.task = task
        self.number = number
        self.count = count
