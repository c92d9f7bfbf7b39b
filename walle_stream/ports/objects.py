"""Files that every machine can reach, in a folder or an object store."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol


class ObjectStore(Protocol):
    """Objects by name (``a/b/c``) for all machines; for any thread, and every method blocks.

    An object is stored completely or not at all, and survives a power cut. Every method raises
    ``StoreUnreachableError`` if the store does not answer, and another ``StoreError`` if it
    refuses.
    """

    @property
    def place(self) -> str:
        """Name of the place for people."""

    def put(self, name: str, source: Path) -> None:
        """Copy a file, which must not change meanwhile; an object of that name is replaced."""

    def create(self, name: str, content: bytes) -> bool:
        """Create an object under an unused name; of several concurrent calls one succeeds.

        Returns whether this call succeeded. The result may also be False if a request was repeated
        on its way and this very call created the object.
        """

    def get(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces.

        Raises:
            FileNotFoundError: The object is missing; raised at the first piece.
        """

    def read(self, name: str, start: int, size: int) -> bytes:
        """Return ``size`` bytes of an object from ``start`` on, or fewer at its end.

        Raises:
            FileNotFoundError: The object is missing.
        """

    def listed(self, folder: str) -> Mapping[str, int]:
        """Return the sizes in bytes of all objects below a folder, by name."""

    def delete(self, names: Collection[str]) -> None:
        """Remove objects; missing ones are ignored."""
