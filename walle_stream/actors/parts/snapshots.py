"""Snapshots for other machines, where a pipeline asks for them."""

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.snapshot_keeper import SnapshotKeeper
from walle_stream.actors.turn import Turn


class Snapshots(Part):
    """See ``actors.snapshot_keeper``; behind all others: it copies what was committed."""

    _opening: Opening

    def __init__(self, keeper: SnapshotKeeper) -> None:
        """Begin.

        Args:
            keeper: Makes them.
        """
        self._keeper = keeper
        self._commits = 0

    def restart(self, opening: Opening) -> None:
        """Copy the database that was opened."""
        self._opening = opening
        self._commits = opening.head.counters.commits

    def committed(self, turn: Turn) -> None:
        """Make a snapshot when it is time to."""
        self._commits = turn.head.counters.commits
        self._keeper.look(self._opening.rows, self._commits)

    def close(self, deadline_ms: float | None) -> None:
        """Make the last one; blocks until the deadline."""
        if deadline_ms is not None:
            self._keeper.finish(self._opening.rows, self._commits, deadline_ms)
