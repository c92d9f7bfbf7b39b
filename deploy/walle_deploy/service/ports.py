"""The seams of the service: where releases come from, who signs addresses.

All methods may block; the service calls them in a thread beside its event loop. Who asks is found
out by ``identity.ports``.
"""

from pathlib import Path
from typing import Final, Protocol

import msgspec

from walle_deploy.model.receipts import ReceiptKeys
from walle_deploy.model.releases import ReleaseTable
from walle_stream.errors import IntegrityError, ServiceUnreachableError
from walle_stream.store.files import put_file


class TableSource(Protocol):
    """Where the table of releases comes from."""

    def generation(self) -> int:
        """Return the table's generation; asked twice a second, so it must be cheap.

        Raises:
            ServiceUnreachableError: The database does not answer; the last table stays in use.
        """
        ...

    def load(self) -> ReleaseTable:
        """Return the whole table.

        Raises:
            ServiceUnreachableError: The database does not answer; the last table stays in use.
            IntegrityError: What is stored is no table.
        """
        ...


class UrlSigner(Protocol):
    """Makes the address of an exclusive file good for one device and for a while."""

    def sign(self, url: str, device: str) -> str:
        """Return the signed address; must not block, as it is called within a check.

        Args:
            url: Of the file at the CEN.
            device: Who may use it.
        """
        ...


class ReceiptSource(Protocol):
    """Keys of receipts and the clock that these go by: one for all services of a store."""

    @property
    def keys(self) -> ReceiptKeys:
        """Those of the last ``refresh``."""
        ...

    def now_ms(self) -> int:
        """Return the clock of the store, epoch milliseconds; must not block."""
        ...

    def refresh(self) -> None:
        """Look for newer keys, and what the time is; called twice a second.

        Raises:
            ServiceUnreachableError: The database does not answer; the last keys stay in use.
            IntegrityError: What is stored are no keys.
        """
        ...


class FileTable:
    """A table in a JSON file: for tests, benches and releases that are made by other means."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet.

        Args:
            path: Of the file, as ``write_table`` made it.
        """
        self._path = path
        self._stamp: tuple[int, int, int] = (0, 0, 0)
        self._generation = 0

    def generation(self) -> int:
        """See ``TableSource``.

        Raises:
            ServiceUnreachableError: The file is not there.
        """
        try:
            found = self._path.stat()
        except OSError as error:
            raise ServiceUnreachableError(f"{self._path}: {error.strerror}") from error
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._generation, self._stamp = self.load().generation, stamp
        return self._generation

    def load(self) -> ReleaseTable:
        """See ``TableSource``.

        Raises:
            ServiceUnreachableError: The file is not there.
            IntegrityError: It holds no table.
        """
        try:
            return _decoder.decode(self._path.read_bytes())
        except OSError as error:
            raise ServiceUnreachableError(f"{self._path}: {error.strerror}") from error
        except msgspec.MsgspecError as error:
            raise IntegrityError(f"{self._path}: no table of releases: {error}") from error


def write_table(path: Path, table: ReleaseTable) -> None:
    """Write a table for ``FileTable``; readers see the old one or the new one."""
    put_file(path, msgspec.json.encode(table))


_decoder: Final = msgspec.json.Decoder(ReleaseTable)
