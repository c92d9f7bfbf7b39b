"""Base class of commit parts, and the opened partition that all parts share."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from walle_stream.actors.plan.partition_plan import PartitionPlan
from walle_stream.actors.plan.partition_sets import PartitionSets
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.calling import Runner
from walle_stream.actors.turns.task_states import TaskStates
from walle_stream.actors.turns.turn import Turn
from walle_stream.ports import Downlink
from walle_stream.stream.interface import Core
from walle_stream.tunnel.session import UplinkSession
from walle_stream.wire.rows import PartitionHead

type OpenSession = Callable[[PartitionRows], UplinkSession]
"""Opens the uplink session of an opened database, and sends the frames of its outbox."""


class PartitionSetup(NamedTuple):
    """Parameters of one partition's host."""

    number: int
    plan: PartitionPlan
    pool: Runner
    open_rows: Callable[[], PartitionRows]
    """Opens the database, at the start and after a failure."""
    open_session: OpenSession
    downlink: Downlink
    keeper: "Part | None" = None
    """Part that makes snapshots for other machines, or None."""


class Opening(msgspec.Struct, frozen=True):
    """A partition opened at its last commit."""

    number: int
    plan: PartitionPlan
    rows: PartitionRows
    head: PartitionHead
    incarnation: str
    sets: PartitionSets
    states: TaskStates
    machine: Core


class Part:
    """A capability that takes part in commits. One thread, the device host's.

    By default each method does nothing. An error of a method ends the turn: nothing of the turn is
    committed, and the partition is opened again.
    """

    def restart(self, opening: Opening) -> None:
        """Begin at the last commit, and forget later changes; may block."""

    def idle(self, turn: Turn) -> bool:  # noqa: ARG002 - for subclasses
        """Add input from other sources than events to the turn; never blocks.

        Called before every commit, and alone if there are no events. Returns whether the input
        alone is worth a commit.
        """
        return False

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Add the part's data to the commit, after the runs of the turn.

        The last turn of an opening has a deadline, until which the part may wait for further data.
        """

    def committed(self, turn: Turn) -> None:
        """Process the commit of the turn."""

    def close(self, deadline_ms: float | None) -> None:
        """Release resources after the last commit, before the database is closed.

        The part may wait until the deadline of the monotonic clock. None: return at once;
        uncommitted data is lost.
        """
