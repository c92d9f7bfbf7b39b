"""The seams of the service: where releases come from, who signs addresses.

All methods may block; the service calls them in a thread beside its event loop. Who asks is found
out by ``identity.ports``.
"""

from typing import Protocol

from walle_deploy.model.receipts import ReceiptKeys
from walle_deploy.model.releases import ReleaseTable


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
