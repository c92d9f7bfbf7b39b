"""The tunnel without a broker: each partition that a process has open has its cloud side with it.

A frame that is sent is merged, in the thread that sends it: there is no way on which it could
be lost, and none of a partition that went elsewhere is here. So a frame is acknowledged
at once: what deletes it from the outbox is a later row of the same log.
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
    """Implements ``DeviceTunnel`` and ``Downlink``. Any thread."""

    def __init__(self, sinks: Sequence[str] = (), report_sink: ReportSink | None = None) -> None:
        """Begin without a partition; ``sinks`` are the names of those that get features."""
        self._sinks, self._report_sink = sinks, report_sink
        self._lock = Lock()
        self._tables: dict[int, OwnTable] = {}
        self._acks: dict[int, list[int]] = {}
        self.counts: dict[int, MergeCounts] = {}
        """Of each partition that is, or was, open here, as of its last merge."""
        self.on_call: Callable[[], None] = lambda: None
        """Called when a call of a service was merged, or a partition may have some."""

    def open(
        self,
        number: int,
        store: PartitionStore,
        incarnation: str,
        *,
        is_snapshot: bool | None = None,
    ) -> None:
        """Have a partition's cloud side from now on, until its database is closed; blocks.

        ``incarnation`` is the partition's. Where it has snapshots, sinks get what they have, and
        ``is_snapshot`` says whether the database was fetched just now.
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
        """Those that are open, by partition."""
        with self._lock:
            return dict(self._tables)

    def tables(self) -> list[OwnTable]:
        """Return those that are open."""
        return list(self.by_number.values())

    # The way up

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Merge frames; see ``Uplink.send``. A closed partition's stay in its outbox.

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
        """Return the numbers that were merged since the last call; see ``Uplink.acks``."""
        with self._lock:
            return self._acks.pop(partition, ())

    def relax(self) -> None:
        """Do nothing: nobody waits; see ``DeviceTunnel.relax``."""

    def close(self) -> None:
        """Do nothing: tables close with their partitions."""

    # The way down

    @property
    def downlink(self) -> "HostTables":
        """The way down."""
        return self

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages; see ``Downlink.receive``."""
        return self._tables[partition].receive_down(position, max_bytes)

    def release(self, partition: int, position: int) -> None:
        """Forget messages; see ``Downlink.release``."""
        self._tables[partition].release_down(position)


class Replies:
    """Implements ``DownlinkSender`` for what answers calls. One thread."""

    def __init__(self, tables: HostTables) -> None:
        """Send to the partitions that are open when something is sent."""
        self._tables = tables
        self._acks: dict[int, list[int]] = {}

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Append messages; those of a partition that was closed are dropped, with their calls.

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
        """Return the numbers that were sent: what closes their calls is of the same log."""
        return self._acks.pop(partition, ())

    def close(self) -> None:
        """Do nothing."""
