"""Where files go that every machine reaches: a folder, or an object store."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol


class ObjectStore(Protocol):
    """Bytes by name (``a/b/c``), for every machine at once. Any thread; every method blocks.

    What was put is there whole or not at all, and survives a power cut. Every method raises
    ``StoreUnreachableError`` where nobody answers now, another ``StoreError`` where it is refused.
    """

    @property
    def place(self) -> str:
        """As people call it."""

    def put(self, name: str, source: Path) -> None:
        """Copy a file that nobody changes; what has the name is replaced."""

    def create(self, name: str, content: bytes) -> bool:
        """Give bytes a name that nothing has yet; of several at once one succeeds.

        Returns whether it did. A request may be repeated on its way: False, too, where this very
        call gave it.
        """

    def get(self, name: str) -> Iterator[bytes]:
        """Yield what has a name, in pieces.

        Raises:
            FileNotFoundError: Nothing has it; at the first piece.
        """

    def read(self, name: str, start: int, size: int) -> bytes:
        """Return ``size`` bytes of what has a name, from ``start`` on; fewer where it ends before.

        Raises:
            FileNotFoundError: Nothing has it.
        """

    def listed(self, folder: str) -> Mapping[str, int]:
        """Return all that is below a folder now, by name, with its size in bytes."""

    def delete(self, names: Collection[str]) -> None:
        """Remove what is there of these."""
