import pytest

from tests.unit.deploy.monitoring.reporting import frame, report
from walle_deploy.model.health import GAMMA
from walle_deploy.monitoring import tally as module
from walle_deploy.monitoring.counts import CLASSES_MAX, VersionCounts, percentile
from walle_deploy.monitoring.history import SPANS_MAX, VersionHistory
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.snapshots import SqliteSnapshots
from walle_stream.errors import ServiceUnreachableError, StoreError
from walle_stream.wire.reports import BUCKET_GAMMA, bucket_of

TASK, MINUTE = "shop/ipv", 60_000


class Clock:
    def __init__(self):
        self.now = 10**12

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with SqliteSnapshots(tmp_path / "monitor.db") as found:
        yield found


def test_devices_and_cloud_have_the_same_buckets():
    assert BUCKET_GAMMA == GAMMA


def test_a_version_is_what_its_devices_reported():
    monitor = Monitor()
    one = report([("a", 5, {"KeyError": 2}), ("b", 3, {})])
    two = report([("b", 2, {"Quarantined": 1}), ("c", 1, {"RunStopped": 1})], latency_us=9_000)
    assert monitor.take([frame(1, one), frame(2, two, report([("a", 1, {})], "v0"))]) == 2
    health = monitor.health(TASK, "v1")
    assert (health.devices, health.failing_devices, health.crashing_devices) == (3, 3, 1)
    assert (health.runs, health.failures, health.strikes) == (11, 4, 1)
    assert health.failure_classes == {"KeyError": 2, "Quarantined": 1, "RunStopped": 1}
    assert health.latency_us == {bucket_of(1_000): 8, bucket_of(9_000): 3}
    assert sum(health.output_bytes.values()) == 7
    assert monitor.health(TASK, "v0").runs == 1
    assert monitor.health(TASK, "v9").devices == 0


def test_a_frame_that_comes_again_counts_once_and_another_partitions_does_not():
    monitor = Monitor()
    frames = [frame(n, report([("a", 1, {})])) for n in (3, 7)]
    assert monitor.take([*frames, *frames]) == 2
    assert monitor.take([frame(7, report([("b", 1, {})]), partition=1)]) == 1
    assert monitor.take([frame(7, report([("c", 1, {})]), incarnation="cd" * 8)]) == 1
    assert monitor.health(TASK, "v1").runs == 4
    assert monitor.counts.frames_again == 2


def test_what_is_malformed_or_of_unknown_tasks_is_counted_and_left():
    monitor = Monitor(is_known=lambda task, version: (task, version) == (TASK, "v1"))
    wrong = frame(1, report([("a", 1, {})]))._replace(body=b"\x05nonsense")
    strange = [report([("a", 1, {})], version) for version in ("v666", "v\0", "v\n")]
    strange.append(report([("a", 1, {})], task="a@b"))
    assert monitor.take([wrong, frame(2, *strange, report([("a", 1, {})]))]) == 1
    counts = monitor.counts
    assert (counts.frames, counts.frames_refused) == (1, 1)
    assert (counts.reports, counts.reports_refused) == (1, 4)
    assert list(monitor.versions()) == [(TASK, "v1")]


def test_versions_and_classes_of_errors_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "VERSIONS_MAX", 2)
    monitor = Monitor()
    monitor.take([frame(1, *(report([("a", 1, {})], f"v{n}") for n in range(4)))])
    assert len(monitor.versions()) == 2
    counts = VersionCounts()
    for n in range(CLASSES_MAX + 10):
        counts.add(report([("a", 1, {f"E{n}": 1})]))
    assert len(counts.classes) == CLASSES_MAX + 1
    assert counts.classes["(other)"] == 10


def test_the_last_minutes_forget(clock):
    monitor = Monitor(now_ms=clock)
    for minute in range(20):
        monitor.take([frame(minute, report([(f"d{minute}", 1, {})]))])
        clock.now += MINUTE
    assert monitor.health(TASK, "v1").devices == 20
    assert monitor.recent(TASK, "v1").devices == 14  # the minute at hand is one
    clock.now += 15 * MINUTE
    assert monitor.recent(TASK, "v1").runs == 0
    assert monitor.versions() == {(TASK, "v1"): clock.now - 16 * MINUTE}
    assert monitor.recent(TASK, "v9").runs == 0


def test_what_happened_since_a_moment_is_known_to_the_report_once_it_is_asked_for(clock):
    monitor = Monitor(now_ms=clock)
    clock.now -= clock.now % (60 * MINUTE)
    number = 0

    def take(minutes):
        nonlocal number
        for _ in range(minutes):
            monitor.take([frame(number, report([(f"d{number}", 1, {})]))])
            number += 1
            clock.now += MINUTE

    take(180)
    # it is asked late: whole minutes of the last ones, whole hours before
    assert monitor.health(TASK, "v1", clock.now - 10 * MINUTE - 1).runs == 10
    assert monitor.health(TASK, "v1", clock.now - 100 * MINUTE).runs == 60
    start, before = clock.now + 1, monitor.health(TASK, "v1").runs
    assert monitor.health(TASK, "v1", start).runs == 0
    clock.now += 2
    for span in range(200):
        take(1)
        assert monitor.health(TASK, "v1", start).runs == span + 1
    assert monitor.health(TASK, "v1").runs == before + 200


def test_spans_are_bounded_and_the_one_that_is_asked_for_stays(clock):
    history = VersionHistory()
    assert history.begin(clock.now)
    for later in range(1, 2 * SPANS_MAX):
        assert history.begin(clock.now + later)
        history.add(report([("a", 1, {})]), clock.now + later)
        assert not history.begin(clock.now)
    assert history.since(clock.now).runs == 2 * SPANS_MAX - 1
    assert not history.begin(0)
    assert len(history._spans) == SPANS_MAX


def test_a_monitor_goes_on_from_what_it_took(store, clock):
    frames = [frame(n, report([(f"d{n}", n, {"E": 1})])) for n in range(1, 9)]
    first = Monitor(store, now_ms=clock)
    first.take(frames[:3])
    again = Monitor(store, now_ms=clock)
    assert again.health(TASK, "v1").runs == 6
    assert again.take(frames) == 5
    whole = Monitor(now_ms=clock)
    whole.take(frames)
    for since_ms in (0, clock.now - MINUTE, clock.now + 9):
        expected = whole.health(TASK, "v1", since_ms)
        assert again.health(TASK, "v1", since_ms) == expected
        assert Monitor(store, now_ms=clock).health(TASK, "v1", since_ms) == expected
        assert HealthReader(store).health(TASK, "v1", since_ms) == expected
    assert Monitor(store, now_ms=clock).recent(TASK, "v1") == whole.recent(TASK, "v1")


def test_slots_survive_a_restart_and_old_ones_do_not_come_back(store, clock):
    whole = Monitor(now_ms=clock)
    for minute in range(40):
        if minute % 17 < 9:  # with pauses longer than some places of the ring
            frames = [frame(minute, report([(f"d{minute}", 1, {})]))]
            whole.take(frames)
            worker = Monitor(store, now_ms=clock)
            worker.take(frames)
        clock.now += MINUTE
        assert Monitor(store, now_ms=clock).recent(TASK, "v1") == whole.recent(TASK, "v1")


def test_workers_are_merged_and_learn_what_is_asked_for(store, clock):
    workers = [Monitor(store, str(n), now_ms=clock) for n in range(3)]
    for number, worker in enumerate(workers):
        devices = [("shared", 1, {}), (f"d{number}", 2, {"E": 1})]
        worker.take([frame(1, report(devices), incarnation=f"{number:016x}")])
    reader = HealthReader(store)
    health = reader.health(TASK, "v1")
    assert (health.devices, health.runs, health.failing_devices) == (4, 9, 3)
    clock.now += 10
    since_ms = clock.now
    assert reader.health(TASK, "v1", since_ms).runs == 0
    for number, worker in enumerate(workers[:2]):
        new = report([("a", 1, {})], "v2")  # a version that nobody knew when it was asked for
        worker.take([frame(2, report([("a", 1, {})]), new, incarnation=f"{number:016x}")])
    assert reader.health(TASK, "v1", since_ms).runs == 2
    assert reader.health(TASK, "v1").runs == 11
    assert reader.health(TASK, "v2", since_ms).runs == 0  # in a slot that began before
    assert reader.health(TASK, "v3").runs == 0
    # a partition that went to another worker is not counted again
    late = Monitor(store, "9", now_ms=clock)
    assert late.take([frame(2, report([("a", 1, {})]), incarnation=f"{0:016x}")]) == 0


def test_a_version_that_is_asked_for_before_its_first_report_is_counted_to_the_report(store, clock):
    monitor, reader = Monitor(store, now_ms=clock), HealthReader(store)
    since_ms = clock.now
    assert reader.health(TASK, "v1", since_ms).runs == 0
    clock.now += 5
    monitor.take([frame(1, report([("a", 3, {})]))])
    assert reader.health(TASK, "v1", since_ms).runs == 3
    alone = Monitor(now_ms=clock)
    assert alone.health(TASK, "v1", clock.now).runs == 0
    alone.take([frame(1, report([("a", 3, {})]))])
    assert alone.health(TASK, "v1", clock.now).runs == 3


def test_a_batch_that_was_not_stored_is_not_counted_and_comes_again(store, clock, monkeypatch):
    monitor = Monitor(store, now_ms=clock)
    monitor.take([frame(1, report([("a", 1, {})]))])
    batch = [frame(2, report([("b", 1, {})]), report([("b", 1, {})], "v2"))]
    save = store.save

    def fail(*_):
        raise StoreError("full")

    def save_and_fail(*given):
        save(*given)
        fail()

    monkeypatch.setattr(store, "save", fail)
    with pytest.raises(StoreError, match="full"):
        monitor.take(batch)
    monkeypatch.setattr(store, "save", save_and_fail)
    with pytest.raises(StoreError, match="full"):
        monitor.take([frame(3, report([("c", 1, {})]))])
    monkeypatch.setattr(store, "load", fail)
    with pytest.raises(ServiceUnreachableError, match="shop/ipv@v1 does is not known now: full"):
        HealthReader(store).health(TASK, "v1")
    monkeypatch.undo()
    # 3 was stored before its answer was lost, 2 comes too late then: a sender keeps the order
    assert monitor.take([*batch, frame(3, report([("c", 1, {})]))]) == 0
    assert monitor.health(TASK, "v1").runs == HealthReader(store).health(TASK, "v1").runs == 2
    assert monitor.health(TASK, "v2").runs == 0
    assert monitor.counts.frames == 1


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"no database" * 1_000)
    with pytest.raises(StoreError, match="cannot be used"):
        SqliteSnapshots(tmp_path / "x")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_are_at_most_one_percent_off(share):
    values = sorted((n * 7919 % 10_000 + 1) ** 1.7 for n in range(5_000))
    buckets = {}
    for value in values:
        buckets[bucket_of(value)] = buckets.get(bucket_of(value), 0) + 1
    exact = values[int(share * (len(values) - 1))]
    assert abs(percentile(buckets, share) / exact - 1) < 0.0101
    assert percentile({}, share) is None
