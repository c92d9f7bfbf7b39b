"""Release stores: transactions on a database.

Things that belong together are written in one ``WriteTransaction``: all of it is there
afterwards, or nothing, through ``kill -9`` of the process and of the database. Writers come
one after the other; readers see one state of everything and wait for nobody. A store may be
used by several threads, which then take turns, and by any number of processes.
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
"""Name of the lease of the one process that takes releases on."""

type Kind = Literal["writing", "counting", "reading"]
"""Of a transaction."""


class ReleaseStore(ABC):
    """Transactions on one database; a database brings how one begins.

    All raise ServiceUnreachableError where the database does not answer, or is busy for long.
    """

    def __init__(self, dialect: Dialect) -> None:
        """Begin."""
        self._dialect = dialect
        # a thread at a time uses the connection
        self._lock = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[WriteTransaction]:
        """Begin a transaction that is kept when its context ends without an error."""
        with self._lock, self._transaction("writing") as execute:
            writer = WriteTransaction(execute, self._dialect)
            yield writer
            writer.close()

    @contextmanager
    def counting(self) -> Iterator[CountTransaction]:
        """Begin a transaction of reports, kept when its context ends without an error.

        Changes of releases wait for none where the database can have several writers.
        """
        with self._lock, self._transaction("counting") as execute:
            yield CountTransaction(execute, self._dialect)

    @contextmanager
    def reading(self) -> Iterator[ReadTransaction]:
        """Begin a look at one state of everything."""
        with self._lock, self._transaction("reading") as execute:
            yield ReadTransaction(execute, self._dialect)

    @abstractmethod
    def _transaction(self, kind: Kind) -> AbstractContextManager[Execute]:
        """Begin a transaction; it is kept when the context ends without an error."""

    @abstractmethod
    def close(self) -> None:
        """Close it; a second call does nothing."""
