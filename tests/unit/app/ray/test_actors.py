"""The driver's side of worker processes, with actors that are names: no Ray."""

from itertools import count
from types import SimpleNamespace

import msgspec
import pytest

from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.ray.actors import DEATHS_MAX, Worker
from walle_stream.app.ray.host import HostState
from walle_stream.app.ray.watching import Watch
from walle_stream.errors import ActorDeadError, StoreCorruptedError, StoreFullError
from walle_stream.ports import Unread
from walle_stream.tunnel.receiver import MergeCounts
from walle_stream.vm.counts import VmCounts
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters


@pytest.fixture
def make():
    """Make a worker whose calls nobody answers."""
    numbers = count()
    hello = SimpleNamespace(remote=lambda: f"call-{next(numbers)}")

    def make(name, **options):
        actor = SimpleNamespace(hello=hello)
        ray = SimpleNamespace(kill=lambda *_, **__: None)
        return Worker(ray, name, lambda: actor, None, **options)

    return make


def state(commits, frames=1):
    counters = Counters(commits=commits, uplink_frames=commits * frames)
    status = PartitionStatus(
        number=0, counters=counters, latencies=Latencies(), active_devices=0,
        outbox_bytes=0, watermark_ms=-1, run_events=0, ledger=Ledger(),
    )  # fmt: skip
    return HostState(
        phase="reading", failure=None, progress=0.0, unread=Unread(), is_ended=False, missing_replies=0, read_events=0,
        mailbox_bytes=0, in_hand_events=0, statuses=[status], vm_counts=VmCounts(), vms=[], cpu_s=0.0, logs=[],
    )  # fmt: skip


def test_a_worker_that_dies_all_the_time_ends_the_run(make):
    worker = make("host 0")
    for _ in range(DEATHS_MAX):
        worker.restart("its process died")
    worker.restart("worn out", is_death=False)
    with pytest.raises(ActorDeadError, match="died 13 times without a commit, last: gone"):
        worker.restart("gone")


@pytest.mark.parametrize("kind", [StoreFullError, StoreCorruptedError])
def test_a_bad_disk_ends_the_run_where_there_is_no_other(make, kind):
    watch, failure = Watch("shop", [], is_placed=False), kind("d is on a bad disk")
    failed = msgspec.structs.replace(state(1), failure=failure)
    elsewhere = make("host 0", is_patient=True)
    watch.take(elsewhere, failed)
    assert elsewhere.restarts == 1
    with pytest.raises(kind) as error:
        watch.take(make("host 0"), failed)
    assert error.value is failure


def test_commits_begin_the_count_of_deaths_anew(make):
    watch, host = Watch("shop", [], is_placed=False), make("host 0")
    watch.hosts.append(host)
    for commits in range(3 * DEATHS_MAX):
        watch.take(host, state(commits))
        host.restart("its process died")
    assert host.restarts == 3 * DEATHS_MAX


def test_figures_of_the_cloud_side_are_those_that_hosts_told_last(make):
    watch = Watch("shop", [], is_placed=False)
    for index in range(2):
        host = make(f"host {index}")
        watch.hosts.append(host)
        host.state = told = state(1)
        told.sink_lags, told.service_counts = {"parquet": 2}, {"double": {"answered": 3}}
        told.cloud = {index: MergeCounts(features=5, frames=2), 7: MergeCounts(frames=index)}
        watch.take(host, told)
    assert (watch.sink_lags, watch.service_counts) == ({"parquet": 4}, {"double": {"answered": 6}})
    assert (watch.cloud[0].features, watch.cloud[1].features, watch.cloud[7].frames) == (5, 5, 1)
