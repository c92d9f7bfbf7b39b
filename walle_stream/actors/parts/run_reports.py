"""Reports of what runs did, for who watches the tasks."""

from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.reports import RunReports
from walle_stream.actors.turn import Turn
from walle_stream.clock import wall_ms


class Reports(Part):
    """See ``actors.reports``; counts outlive restarts."""

    def __init__(self, counts: RunReports) -> None:
        """Begin.

        Args:
            counts: Of the partition's runs.
        """
        self._counts = counts

    def restart(self, opening: Opening) -> None:
        """Forget the turn that was not committed."""
        self._counts.restart()
        self._counts.relabel(opening.sets.labels)

    def idle(self, turn: Turn) -> bool:
        """Say whether a report is due."""
        return self._counts.is_due(wall_ms(), is_last=turn.is_last)

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:  # noqa: ARG002 - the part's
        """Make the frames of a report that is due."""
        turn.bodies += self._counts.take(wall_ms(), is_last=turn.is_last)

    def committed(self, turn: Turn) -> None:  # noqa: ARG002 - the part's signature
        """Count the turn's runs, for the next report."""
        self._counts.committed()
