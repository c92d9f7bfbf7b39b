"""What a commit part is, and the opened partition that all parts share."""

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
"""Opens the way up for an opened database; sends what the outbox holds."""


class PartitionSetup(NamedTuple):
    """What one partition's host is made of."""

    number: int
    plan: PartitionPlan
    pool: Runner
    open_rows: Callable[[], PartitionRows]
    """Opens its database; also after a failure."""
    open_session: OpenSession
    downlink: Downlink
    keeper: "Part | None" = None
    """Makes snapshots for other machines; None for none."""


class Opening(msgspec.Struct, frozen=True):
    """A partition that was opened at its last commit."""

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

    Each method does nothing unless a part says what. An exception of one ends the turn:
    nothing of it is committed, and the partition is opened again.
    """

    def restart(self, opening: Opening) -> None:
        """Begin at the last commit, and forget what came behind it; may block."""

    def idle(self, turn: Turn) -> bool:  # noqa: ARG002 - the part's own to use
        """Bring into the turn what came from elsewhere meanwhile; never blocks.

        Called before every commit, and by itself where nothing is read. Returns whether that alone
        is worth a commit.
        """
        return False

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Add what is this part's to the commit; behind the runs of the turn.

        The last turn of an opening has a deadline: wait until then for what is still to come.
        """

    def committed(self, turn: Turn) -> None:
        """Learn that the turn is in the store."""

    def close(self, deadline_ms: float | None) -> None:
        """Let go, before the database is closed; behind the last commit.

        It may wait until the deadline of the monotonic clock; None: leave at once, what was not
        committed is lost.
        """
