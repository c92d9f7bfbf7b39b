"""The tunnel without a broker: each open partition has its cloud side with it.

A sent frame is merged in the thread that sends it. It cannot be lost on the way, and no frame of a
partition that moved elsewhere arrives here. A frame is therefore acknowledged at once: the row that
deletes it from the outbox comes later in the same log.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from walle_stream.cloud.own_table import OwnTable
from walle_stream.errors import StoreError
from walle_stream.ports import ReportSink
from walle_stream.store.partition import PartitionStore
from walle_stream.types import UplinkFrame

if TYPE_CHECKING:
    from walle_stream.tunnel.receiver import MergeCounts


class HostTables:
    """``DeviceTunnel`` and ``Downlink`` without a broker. Any thread."""

    def __init__(self, sinks: Sequence[str] = (), report_sink: ReportSink | None = None) -> None:
        """Begin without a partition; ``sinks`` has the names of the sinks that get features."""
        self._sinks, self._report_sink = sinks, report_sink
        self._lock = Lock()
        self._tables: dict[int, OwnTable] = {}
        self._acks: dict[int, list[int]] = {}
        self.counts: dict[int, MergeCounts] = {}
        """Merge counts of each partition that is or was open here, at its last merge."""
        self.on_call: Callable[[], None] = lambda: None
        """Called after the merge of a call, or when a partition may have open calls."""

    def open(
        self,
        number: int,
        store: PartitionStore,
        incarnation: str,
        *,
        is_snapshot: bool | None = None,
    ) -> None:
        """Open a partition's cloud side, until its database is closed; blocks.

        ``incarnation`` is the partition's. With snapshots, sinks get only the contents of
        snapshots, and ``is_snapshot`` tells whether the database was just fetched from one.
        """
        table = OwnTable(store, self._report_sink)
        table.serve_sinks(self._sinks, f"{incarnation}-{number:04d}")
        if is_snapshot is not None and table.sink_log is not None:
            table.sink_log.hold(is_snapshot=is_snapshot)

        def leave() -> None:
            with self._lock:
                if self._tables.get(number) is table:
                    del self._tables[number]
            table.close()

        table.leave = leave
        store.tenant = table
        with self._lock:
            self._tables[number] = table
        self.counts[number] = table.stats
        self.on_call()

    @property
    def by_number(self) -> Mapping[int, OwnTable]:
        """Open tables, by partition."""
        with self._lock:
            return dict(self._tables)

    def tables(self) -> list[OwnTable]:
        """Return the open tables."""
        return list(self.by_number.values())

    # Uplink

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Merge frames; see ``Uplink.send``. Frames of a closed partition stay in its outbox.

        Raises:
            StoreError: A partition's database fails.
        """
        shares: dict[int, list[UplinkFrame]] = {}
        for frame in frames:
            shares.setdefault(frame[0], []).append(frame)
        tables = self.by_number
        for number in shares.keys() & tables.keys():
            table, calls = tables[number], tables[number].last_call
            table.merge([data for _, _, data in shares[number]])
            self.counts[number] = table.stats
            with self._lock:
                self._acks.setdefault(number, []).extend(each for _, each, _ in shares[number])
            if table.last_call != calls:
                self.on_call()

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers of frames merged since the last call; see ``Uplink.acks``."""
        with self._lock:
            return self._acks.pop(partition, ())

    def relax(self) -> None:
        """Do nothing: no sender waits; see ``DeviceTunnel.relax``."""

    def close(self) -> None:
        """Do nothing: tables close with their partitions."""

    # Downlink

    @property
    def downlink(self) -> "HostTables":
        """The downlink, which is this object."""
        return self

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages; see ``Downlink.receive``."""
        return self._tables[partition].receive_down(position, max_bytes)

    def release(self, partition: int, position: int) -> None:
        """Delete messages; see ``Downlink.release``."""
        self._tables[partition].release_down(position)


class Replies:
    """``DownlinkSender`` for replies to calls. One thread."""

    def __init__(self, tables: HostTables) -> None:
        """Send to the partitions that are open at the time of each send."""
        self._tables = tables
        self._acks: dict[int, list[int]] = {}

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Append messages; those of a closed partition are dropped, and their calls stay open.

        Raises:
            StoreError: A partition's database fails.
        """
        tables = self._tables.by_number
        for partition, number, message in frames:
            self._acks.setdefault(partition, []).append(number)
            table = tables.get(partition)
            try:
                if table is not None:
                    table.send_down([message])
            except StoreError:
                if self._tables.by_number.get(partition) is table:
                    raise

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers of sent messages: the same log closes their calls later."""
        return self._acks.pop(partition, ())

    def close(self) -> None:
        """Do nothing."""
