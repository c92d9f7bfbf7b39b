"""A partition that wanders between machines holds what one that stayed at home holds."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_recovery_property import Life, canonical
from tests.unit.stream.test_machine import make_events
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.snapshot_keeper import SnapshotKeeper
from walle_stream.actors.turn import Delivery
from walle_stream.clock import monotonic_ms
from walle_stream.ports import SourceBatch, SourceCounts
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import PartitionSnapshots
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.tunnel.session import UplinkSession

POLICY = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
BATCH = 7
FAR_MS = 60_000.0

# on which machine, how many batches, and whether it ends with its last commit told
stays = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 8), st.booleans()), min_size=1, max_size=6
)


def batches(seed: int) -> list[SourceBatch]:
    events = make_events(seed)
    last = (len(events) - 1) // BATCH
    return [
        SourceBatch(
            0,
            events[number * BATCH : (number + 1) * BATCH],
            b"%d" % (number + 1),
            SourceCounts(),
            [],
            is_end=number == last,
        )
        for number in range(last + 1)
    ]


class Machine:
    """A folder of its own, snapshots in one that all machines reach."""

    def __init__(self, folder: Path, shared: Path, horizon: int, uploads: Any) -> None:
        folder.mkdir()
        self.path = folder / "rows"
        self.life = Life(folder, horizon, 10**6, POLICY)
        self.shared, self.uploads = shared, uploads

    def open(self, generation: int) -> PartitionHost:
        keeper = SnapshotKeeper(PartitionSnapshots(self.shared, 0), self.uploads, 0.0)
        epoch = 0
        if self.path.exists():
            rows = PartitionRows(PartitionStore.open(self.path))
            epoch = rows.epoch
            rows.close()
        keeper.fetch(self.path, epoch)

        def open_session(rows: PartitionRows) -> UplinkSession:
            epoch = rows.next_epoch(generation << 32)
            return UplinkSession(self.life.tunnel, 0, epoch, "ab" * 8, rows.outbox())

        return PartitionHost(
            0,
            self.life.plan,
            self.life.pool,
            lambda: PartitionRows(PartitionStore.open(self.path)),
            open_session,
            self.life.tunnel,
            keeper,
        )


def rows_of(path: Path) -> dict[bytes, Any]:
    with PartitionStore.open(path, read_only=True) as store:
        return dict(canonical(store))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), stays, st.sampled_from([0, 30, 10**6]))
def test_state_follows_its_partition(
    seed: int, moves: list[tuple[int, int, bool]], horizon: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = Life(Path(folder), 0, 10**6, POLICY).run(make_events(seed), [], ())
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as uploads:
        folder = Path(name)
        machines = [Machine(folder / str(n), folder / "shared", horizon, uploads) for n in range(3)]
        everything = len(batches(seed))
        for generation, (number, count, is_told) in enumerate([*moves, (0, everything, True)], 1):
            host = machines[number].open(generation)
            # where nobody told the last commits, the source is read again
            first = int(host.offset or b"0")
            for batch in batches(seed)[first : first + count]:
                host.deliver(Delivery(batch, 0.0))
            if is_told:
                host.close(monotonic_ms() + FAR_MS)
            else:
                host.abandon()
        assert rows_of(machines[0].path) == expected
