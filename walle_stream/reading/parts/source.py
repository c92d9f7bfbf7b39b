"""The source that a folder of parts is, in the place of the file that was cut."""

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
    """Return the source of a section ``spec.source`` whose ``path`` has parts; else None.

    ``path`` is a folder, or the URL of one in an object store; ``reach`` opens either.
    """
    is_file = isinstance(model.path, Path) and not model.path.is_dir()
    return None if is_file else PartedSource(model, reach(str(model.path)))


class PartedSource(LaneSource):
    """A source in parts; it never grows. Everything but its making reads the manifest."""

    reads_apart = True

    def __init__(self, model: Any, objects: "ObjectStore") -> None:
        """Keep the definition, and what its ``path`` leads to."""
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
        """What all parts contain; not where they are, nor when they were cut."""
        return {"format": _FORMAT, "digest": self._manifest.digest}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Say how it differs from a stored fingerprint."""
        before = stored.get("format")
        return super().difference(stored) if before == _FORMAT else f"it is parts, before {before}"

    @override
    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Refuse a pipeline that has its devices elsewhere; see ``ports.Source.check_placing``.

        Raises:
            SourceError: It has.
        """
        count = len(self._manifest.parts)
        if count != partition_count:
            raise SourceError(
                f"{self.name} has {count} parts, the pipeline {partition_count} partitions: run "
                f"walle partition again, or set spec.runtime.partitions={count}"
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
