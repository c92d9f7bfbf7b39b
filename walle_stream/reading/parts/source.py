"""The source that a folder of parts is, in the place of the file that was cut."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, override

from walle_stream.errors import SourceError
from walle_stream.reading.parts.layout import Manifest, rules_of
from walle_stream.reading.parts.reader import PartReader
from walle_stream.reading.source import LaneSource, Opening
from walle_stream.types import Placing, placing_mark

if TYPE_CHECKING:
    from pathlib import Path

    from walle_stream.ports import DeclaredIds


_FORMAT: Final = "parts"


def parted(model: Any) -> "PartedSource | None":
    """Return the source of a section ``spec.source`` whose ``path`` is a folder; else None."""
    return PartedSource(model) if model.path.is_dir() else None


class PartedSource(LaneSource):
    """A source in parts; it never grows. Everything but its making reads the manifest."""

    reads_apart = True

    def __init__(self, model: Any) -> None:
        """Keep the definition, whose ``path`` is a folder."""
        self.path: Path = model.path
        self.name = f"source {str(self.path)!r}"
        self.declared: DeclaredIds | None = getattr(model, "declared", None)
        self._rules = rules_of(model)

    @cached_property
    def _manifest(self) -> Manifest:
        found = Manifest.read(self.path)
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
        return PartReader(self.path, self._manifest, opening)
