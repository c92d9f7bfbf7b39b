"""Questions to the cloud, its replies and messages."""

from functools import partial

from walle_stream.actors.exchange import CloudExchange
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.turn import Turn
from walle_stream.ports import Downlink
from walle_stream.wire.calls import encode_calls


class Calls(Part):
    """What came down goes into the turn, what runs ask goes up with its commit."""

    _opening: Opening
    _exchange: CloudExchange

    def __init__(self, downlink: Downlink) -> None:
        """Begin.

        Args:
            downlink: Where messages for the partition's devices come from.
        """
        self._downlink = downlink

    def restart(self, opening: Opening) -> None:
        """Read the way down from the last commit's position."""
        self._opening = opening
        plan = opening.plan
        self._exchange = CloudExchange(
            opening.number, opening.rows, self._downlink, opening.incarnation, plan.only_device
        )

    def idle(self, turn: Turn) -> bool:
        """Take messages down; what comes last waits for the next run."""
        if turn.is_last:
            return False
        inbound = self._exchange.take(turn.head, self._opening.sets.names)
        turn.replies += inbound.replies
        turn.dead_letters += inbound.dead_letters
        return inbound.count > 0

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:  # noqa: ARG002 - the part's
        """Write calls as open, and make frames of them."""
        opening, head = self._opening, turn.head
        if turn.done.calls:
            calls = opening.machine.complete_calls(turn.done.calls)
            turn.calls = self._exchange.put_calls(calls, opening.sets.versions)
            head.counters.calls += len(turn.calls)
            turn.bodies += encode_calls(turn.calls, opening.plan.compression)
        turn.on_durable.append(partial(self._exchange.release, head.downlink_position))
