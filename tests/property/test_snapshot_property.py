"""A partition that wanders between machines holds what one that stayed at home holds."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_recovery_property import Life, Tunnel, canonical, deliver
from tests.unit.stream.test_machine import make_events
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts.part import PartitionSetup
from walle_stream.actors.parts.snapshots import SnapshotKeeper
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Delivery
from walle_stream.clock import monotonic_ms
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts
from walle_stream.store.objects import FolderObjects
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import PartitionSnapshots
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.tunnel.receiver import Senders
from walle_stream.tunnel.session import UplinkSession
from walle_stream.types import UplinkFrame
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body

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
            EventBatch(events[number * BATCH : (number + 1) * BATCH]),
            b"%d" % (number + 1),
            SourceCounts(),
            [],
            is_end=number == last,
        )
        for number in range(last + 1)
    ]


class Cloud:
    """Takes what a receiver takes: no older epoch, no number twice."""

    def __init__(self) -> None:
        self.senders, self.features = Senders(), list[tuple[str, int, bytes]]()
        self.last = dict[str, int]()

    def take(self, frame: bytes) -> None:
        sent = decode_uplink(frame)
        if not self.senders.admits(sent.incarnation, sent.partition, sent.epoch):
            return
        for each in decode_body(sent.body):
            last = self.last.get(each.device_id, 0)
            assert each.sequence_number <= last + 1, f"{each.device_id} lost {last + 1}"
            if each.sequence_number > last:
                self.last[each.device_id] = each.sequence_number
                self.features.append((each.device_id, each.sequence_number, each.feature))


class Line(Tunnel):
    """Acknowledges what arrives, taken or refused, as a broker does."""

    def __init__(self, cloud: Cloud) -> None:
        super().__init__()
        self.cloud = cloud

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        super().send(frames)
        for _, _, frame in frames:
            self.cloud.take(frame)


class Unfinished:
    """Uploads that their machine does not live to see."""

    def submit(self, *_: Any) -> Future[None]:
        return Future()


class Machine:
    """A folder of its own, snapshots in one that all machines reach."""

    def __init__(
        self, folder: Path, shared: Path, horizon: int, uploads: Any, cloud: "Cloud | None" = None
    ) -> None:
        folder.mkdir()
        self.path = folder / "rows"
        self.life = Life(folder, horizon, 10**6, POLICY)
        self.life.tunnel = Line(cloud) if cloud else Tunnel()
        self.shared, self.uploads = shared, uploads

    def open(self, generation: int) -> PartitionHost:
        snapshots = PartitionSnapshots(FolderObjects(self.shared), "shop", 0)
        keeper = SnapshotKeeper(snapshots, self.uploads, 0.0)
        epoch = 0
        if self.path.exists():
            rows = PartitionRows(PartitionStore.open(self.path))
            epoch = rows.epoch
            rows.close()
        claimed = keeper.take_over(self.path, epoch, range(generation << 32, 1 << 63))

        def open_session(rows: PartitionRows) -> UplinkSession:
            epoch = rows.next_epoch(claimed)
            return UplinkSession(self.life.tunnel, 0, epoch, "ab" * 8, rows.outbox())

        return PartitionHost(
            PartitionSetup(
                0,
                self.life.plan,
                self.life.pool,
                lambda: PartitionRows(PartitionStore.open(self.path)),
                open_session,
                self.life.tunnel,
                keeper,
            )
        )


def rows_of(path: Path) -> dict[bytes, Any]:
    with PartitionStore.open(path, read_only=True) as store:
        return dict(canonical(store))


@settings(max_examples=12)
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
                deliver(host, Delivery(batch, 0.0))
            if is_told:
                host.close(monotonic_ms() + FAR_MS)
            else:
                host.abandon()
        assert rows_of(machines[0].path) == expected


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_an_owner_that_was_cut_off_does_not_trust_what_it_did_meanwhile(
    tmp_path: Path, *, has_snapshot: bool
) -> None:
    seed = 3
    everything = [Delivery(batch, 0.0) for batch in batches(seed)]
    alone = Cloud()
    with ThreadPoolExecutor(1) as uploads:
        stayed = Machine(tmp_path / "stayed", tmp_path / "its", 30, uploads, alone).open(1)
        for each in everything:
            deliver(stayed, each)
        stayed.abandon()
    cloud, shared = Cloud(), tmp_path / "shared"
    with ThreadPoolExecutor(1) as uploads:
        own = uploads if has_snapshot else Unfinished()
        cut_off = Machine(tmp_path / "0", shared, 30, own, cloud)
        first = cut_off.open(1)
        for batch in batches(seed)[:3]:
            deliver(first, Delivery(batch, 0.0))
        uploads.submit(int).result()
        second = Machine(tmp_path / "1", shared, 30, Unfinished(), cloud).open(2)
        begin = int(second.offset or b"0")
        assert (begin > 0) is has_snapshot
        for batch in batches(seed)[begin : begin + 2]:
            deliver(second, Delivery(batch, 0.0))
        second.abandon()
        for batch in batches(seed)[3:8]:
            deliver(first, Delivery(batch, 0.0))  # it does not know: all of this is refused
        first.abandon()
        third = cut_off.open(3)
        for batch in batches(seed)[int(third.offset or b"0") :]:
            deliver(third, Delivery(batch, 0.0))
        third.abandon()
    assert sorted(cloud.features) == sorted(alone.features)
