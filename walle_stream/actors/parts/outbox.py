"""Frames: numbered and kept in the outbox until they are acknowledged."""

from collections.abc import Sequence

from walle_stream.actors.parts.outgoing import Outgoing
from walle_stream.actors.parts.part import Opening, OpenSession, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.tunnel.session import UplinkSession
from walle_stream.types import UplinkFrame
from walle_stream.wire.rows import PartitionHead


class Outbox(Part):
    """Outbox of a partition; after all parts that make frames."""

    _session: UplinkSession
    _outgoing: Outgoing

    def __init__(self, open_session: OpenSession) -> None:
        """Begin; each restart opens a session."""
        self._open_session = open_session
        self._frames: list[tuple[int, bytes]] = []

    def restart(self, opening: Opening) -> None:
        """Open the uplink session; blocks while the tunnel is full."""
        rows = opening.rows
        self._session = self._open_session(rows)
        self._outgoing = Outgoing(rows.durability, self._session)

    def idle(self, turn: Turn) -> bool:  # noqa: ARG002 - part signature
        """Process acknowledgements."""
        self._session.pump()
        return False

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Number the frames, write them, and delete the acknowledged ones."""
        if turn.deadline_ms is not None:
            self._session.flush(turn.deadline_ms)
        head = turn.head
        self._frames = list(enumerate(turn.bodies, head.next_frame))
        head.next_frame += len(self._frames)
        head.counters.uplink_frames += len(self._frames)
        head.counters.uplink_bytes += sum(map(self._session.size_bytes, turn.bodies))
        rows.put_outbox(self._frames, self._settled(head))

    def committed(self, turn: Turn) -> None:
        """Queue the frames until they are durable."""
        self._outgoing.add(self._frames, turn.on_durable)

    def _settled(self, head: PartitionHead) -> list[int]:
        # frames to delete: acknowledged, or dropped by the outbox's policy
        dropped = self._session.shed(head.watermark_ms)
        head.counters.dropped_frames += len(dropped)
        head.counters.dropped_features += sum(frame.features for frame in dropped)
        return self._session.collect() + [frame.number for frame in dropped]

    # Between commits

    @property
    def is_waiting(self) -> bool:
        """Whether a commit is not durable yet."""
        return self._outgoing.is_waiting

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of the frames without acknowledgement."""
        return self._session.in_flight_bytes

    def due(self, *, is_all: bool = False) -> list[UplinkFrame]:
        """Return the durable frames, each once; ``is_all`` waits until all are on the disk."""
        return self._outgoing.settle() if is_all else self._outgoing.step()

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Send frames, including those of the host's other partitions; blocks while it is full."""
        self._session.send(frames)
