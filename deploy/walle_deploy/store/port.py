"""Release stores: transactions on a database.

One ``WriteTransaction`` writes changes that belong together. After ``kill -9`` of the process or of
the database, either all of them are stored or none. Writers run one after the other. Readers see
one consistent state and never wait. Any number of processes may use a store; threads of one process
take turns.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Literal

from walle_deploy.store.counter import CountTransaction
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.schema import Dialect, Execute
from walle_deploy.store.writer import WriteTransaction

LEADER: Final = "controller"
"""Name of the lease of the one process that drives releases."""

type Kind = Literal["writing", "counting", "reading"]
"""Kind of a transaction."""


class ReleaseStore(ABC):
    """Transactions on one database; a subclass begins and ends them.

    All raise ServiceUnreachableError if the database does not answer, or is busy for long.
    """

    def __init__(self, dialect: Dialect) -> None:
        """Take the database's dialect; a subclass connects."""
        self._dialect = dialect
        # one thread at a time uses the connection
        self._lock = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[WriteTransaction]:
        """Begin a transaction; it commits if the context ends without an error."""
        with self._lock, self._transaction("writing") as execute:
            writer = WriteTransaction(execute, self._dialect)
            yield writer
            writer.close()

    @contextmanager
    def counting(self) -> Iterator[CountTransaction]:
        """Begin a transaction for reports; it commits if the context ends without an error.

        Changes of releases do not wait for it if the database allows several writers.
        """
        with self._lock, self._transaction("counting") as execute:
            yield CountTransaction(execute, self._dialect)

    @contextmanager
    def reading(self) -> Iterator[ReadTransaction]:
        """Begin a read of one consistent state."""
        with self._lock, self._transaction("reading") as execute:
            yield ReadTransaction(execute, self._dialect)

    @abstractmethod
    def _transaction(self, kind: Kind) -> AbstractContextManager[Execute]:
        """Begin a transaction; it commits if the context ends without an error."""

    @abstractmethod
    def close(self) -> None:
        """Close the store; a second call does nothing."""
