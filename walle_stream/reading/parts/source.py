"""The source in a folder of parts, which replaces the file that was cut."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, override

from walle_stream.errors import SourceError, StoreError, StoreUnreachableError
from walle_stream.reading.parts.layout import Manifest, rules_of
from walle_stream.reading.parts.reader import PartReader
from walle_stream.reading.source import LaneSource, Opening
from walle_stream.types import Placing, placing_mark

if TYPE_CHECKING:
    from walle_stream.ports import DeclaredIds, ObjectStore


_FORMAT: Final = "parts"


def parted(model: Any, reach: "Callable[[str], ObjectStore]") -> "PartedSource | None":
    """Return the source of a section ``spec.source`` whose ``path`` has parts, or None.

    ``path`` is a folder, or its URL in an object store; ``reach`` opens either.
    """
    is_file = isinstance(model.path, Path) and not model.path.is_dir()
    return None if is_file else PartedSource(model, reach(str(model.path)))


class PartedSource(LaneSource):
    """A source in parts, which never grows; every use except its making reads the manifest."""

    reads_apart = True

    def __init__(self, model: Any, objects: "ObjectStore") -> None:
        """Keep the rules of the definition, and the object store of its ``path``."""
        self.name = f"source {objects.place!r}"
        self._objects = objects
        self.declared: DeclaredIds | None = getattr(model, "declared", None)
        self._rules = rules_of(model)

    @cached_property
    def _manifest(self) -> Manifest:
        try:
            found = Manifest.read(self._objects)
        except StoreUnreachableError:
            raise
        except StoreError as error:
            raise SourceError(f"parts cannot be read: {error.__cause__ or error}") from error
        if found.rules != self._rules:
            raise SourceError(
                f"{self.name} was cut by another spec.source, which differs in more than its path: "
                "run walle partition again, or restore the previous keys"
            )
        return found

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """Identity of the contents of all parts, without their place or time."""
        return {"format": _FORMAT, "digest": self._manifest.digest}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Return the difference from a stored fingerprint as text."""
        before = stored.get("format")
        return (
            super().difference(stored)
            if before == _FORMAT
            else f"it is in parts now, but was {before}"
        )

    @override
    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Refuse a pipeline that places devices differently; see ``ports.Source.check_placing``.

        Raises:
            SourceError: The number of partitions or the rule differs.
        """
        count = len(self._manifest.parts)
        if count != partition_count:
            raise SourceError(
                f"{self.name} has {count} parts, but the pipeline {partition_count} partitions: "
                f"run walle partition again, or set spec.runtime.partitions={count}"
            )
        if self._manifest.placing != placing_mark(placing):
            raise SourceError(
                f"{self.name} was cut for a pipeline whose source and tunnel place devices by "
                "another rule: run walle partition again with this one"
            )

    @override
    def _reader(self, opening: Opening) -> PartReader:
        self.check_placing(len(opening.numbers), opening.placing)
        return PartReader(self._objects, self._manifest, opening)
