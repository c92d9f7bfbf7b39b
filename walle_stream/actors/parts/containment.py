"""Notes that scripts ran, so that those that ended the process are contained next time."""

from walle_stream.actors.doubt import Doubt
from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.turn import Turn


class Containment(Part):
    """See ``actors.doubt``; it outlives restarts, as the process does."""

    def __init__(self, doubt: Doubt) -> None:
        """Begin.

        Args:
            doubt: About the partition.
        """
        self._doubt = doubt

    def restart(self, opening: Opening) -> None:
        """Look at where the partition begins."""
        self._doubt.begin(opening.head)

    def committed(self, turn: Turn) -> None:
        """Take the commit into account."""
        self._doubt.commit(turn.events, turn.head)

    def close(self, deadline_ms: float | None) -> None:  # noqa: ARG002 - the part's signature
        """Say that no VM has runs of the partition any more."""
        self._doubt.put_down()
