from contextlib import closing, contextmanager

import pytest
from msgspec import structs

from tests.unit.deploy.monitoring.reporting import (
    KEYS,
    MINUTE,
    TASK,
    Clocked,
    begin_step,
    frame,
    grouped,
    health,
    publish,
    receipt,
    report,
)
from walle_deploy.model.health import GAMMA, LEVELS, ReleaseHealthQuery
from walle_deploy.model.receipts import ReceiptKeys
from walle_deploy.monitoring.counts import CLASSES_MAX, WindowCounts, percentile
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.watch import FleetView
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import ServiceUnreachableError
from walle_stream.wire.buckets import BUCKET_GAMMA, bucket_of

HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
TABLES = ("walle_scopes", "walle_counted", "walle_windows", "walle_marks")


@pytest.fixture
def store(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as plain:
        publish(plain, "v0", "v1", "v2")
        yield Clocked(plain)


def read(token):
    return KEYS.read(token, 10**12)


def row_counts(store):
    count = "SELECT COUNT(*) FROM "
    return [store.store._connection.execute(count + each).fetchone()[0] for each in TABLES]


def batch(*numbers, version="v1", **where):
    return [frame(n, report([(f"d{n}", 1, {})], version), **where) for n in numbers]


RELEASE = ReleaseHealthQuery(release_id="r1", task=TASK, version="v2", before="v1", step_ms=0)


def release_health(store, step_ms=0, after=-1, reader=None):
    query = structs.replace(RELEASE, step_ms=step_ms, after=after)
    return (reader or HealthReader(store)).release_health(query)


def test_devices_and_cloud_have_the_same_buckets():
    assert BUCKET_GAMMA == GAMMA


def test_a_version_is_what_its_devices_reported(store):
    monitor = Monitor(store)
    one = report([("a", 5, {"KeyError": 2}), ("b", 3, {}), ("idle", 0, {})])
    two = report([("b", 2, {"Quarantined": 1}), ("c", 1, {"RunStopped": 1})], latency_us=9_000)
    assert monitor.take([frame(1, one), frame(2, two, report([("a", 1, {})], "v0"))]) == 2
    found = health(store)
    assert (found.devices, found.failing_devices, found.crashing_devices) == (3, 3, 1)
    assert (found.runs, found.failures) == (11, 4)
    assert found.failure_classes == {"KeyError": 2, "Quarantined": 1, "RunStopped": 1}
    # each device once, by its first report of the minute; the idle one never ran
    assert found.latency_us == {bucket_of(1_000): 2, bucket_of(9_000): 1}
    assert sum(found.output_bytes.values()) == found.device_minutes == 3
    assert health(store, "v0").runs == 1
    assert health(store, "v9").devices == 0


def test_a_frame_counts_once_whichever_monitor_takes_it(store):
    monitor, other = Monitor(store), Monitor(store)
    frames = [frame(n, report([("a", 1, {})])) for n in (3, 7)]
    assert monitor.take([*frames, *frames]) == 2
    assert other.take([*frames, frame(8, report([("b", 1, {})]))]) == 1
    assert monitor.take([frame(7, report([("b", 1, {})]), partition=1)]) == 1
    assert monitor.take([frame(7, report([("c", 1, {})]), incarnation="cd" * 8)]) == 1
    assert (health(store).runs, health(store).devices) == (5, 3)
    assert (monitor.counts.frames_again, other.counts.frames_again) == (2, 2)


def test_what_is_malformed_or_was_never_published_is_counted_and_leaves_no_row(store):
    monitor = Monitor(store)
    wrong = frame(1, report([("a", 1, {})]))._replace(body=b"\x05nonsense")
    strange = [report([("a", 1, {})], version) for version in ("v666", "v\0", "v\n")]
    strange.append(report([("a", 1, {})], task="a@b"))
    many = [frame(1, each, incarnation=f"{n:016x}") for n, each in enumerate(strange * 50)]
    assert monitor.take([wrong, *many, frame(2, report([("idle", 0, {})]))]) == 0
    assert row_counts(store) == [0, 0, 0, 0]
    assert (monitor.counts.frames_refused, monitor.counts.reports_refused) == (1, 201)
    assert monitor.take([frame(3, *strange, report([("a", 1, {})]))]) == 1
    assert (monitor.counts.frames, monitor.counts.reports) == (1, 1)


def test_classes_of_errors_and_numbers_are_bounded(store):
    counts = WindowCounts()
    for n in range(CLASSES_MAX + 10):
        counts.add_classes({f"E{n}": 1})
    assert len(counts.classes) == CLASSES_MAX + 1
    assert counts.classes["(other)"] == 10
    monitor = Monitor(store)
    for number in range(3):
        monitor.take([frame(number, *[report([("liar", 2**53, {"E": 2**53})])] * 1_100)])
    assert health(store).runs == 2**62
    monitor.take([frame(9, report([("a", 1, {})]))])
    assert health(store).devices == 2


def test_the_last_minutes_forget(store):
    monitor, view = Monitor(store), FleetView(store, lambda: {(TASK, "v1"), (TASK, "v9")})
    begun = store.now
    assert view.versions() == {(TASK, "v1"): begun, (TASK, "v9"): begun}
    for minute in range(20):
        monitor.take([frame(minute, report([(f"d{minute}", 1, {}), ("always", 1, {})]))])
        store.now += MINUTE
    assert health(store).devices == 21
    view.versions()
    assert view.recent(TASK, "v1").devices == 15  # the minute at hand is one
    assert view.recent(TASK, "v1").runs == 28
    store.now += 15 * MINUTE
    assert view.versions() == {(TASK, "v1"): store.now - 16 * MINUTE, (TASK, "v9"): begun}
    assert view.recent(TASK, "v1").runs == view.recent(TASK, "v9").runs == 0


@pytest.mark.parametrize(
    ("begun", "runs"), [(240, 0), (234, 6), (233, 7), (90, 150), (30, 210), (33, 210)]
)
def test_what_happened_since_a_step_began_is_known_to_the_minute_then_to_the_hour(
    store, begun, runs
):
    monitor, reader = Monitor(store, read), HealthReader(store)
    store.now -= store.now % HOUR
    step_ms = store.now + begun * 10 * MINUTE
    for number in range(40 * 6):  # one report in ten minutes
        if number == begun:
            begin_step(store, 1)
        devices = [(f"d{number % 12}", 1, {"E": number % 2})]
        monitor.take([frame(number, grouped(devices, "new", "v2"))])
        store.now += 10 * MINUTE
        step = release_health(store, step_ms=step_ms, reader=reader).new.step
        assert step.runs == max(0, number + 1 - begun) or number > 26 * 6
    assert step.runs in {runs, 240 - begun}  # whoever has looked before knows better
    step = release_health(store, step_ms=step_ms).new.step
    assert (step.runs, step.devices) == (runs, min(12, runs))
    assert step.failing_devices == min(6, (runs + 1) // 2)
    assert health(store, "v2").runs == 240
    assert row_counts(store)[2] <= 4 * (27 * 6 + 14)


def test_months_of_reports_take_no_more_room_than_days(store):
    monitor, reader, counts = Monitor(store), HealthReader(store), []
    for number in range(70 * 4):
        monitor.take(
            [frame(number, report([(f"d{number % 50}", 1, {"E": 1}), (f"once-{number}", 1, {})]))]
        )
        monitor.take([])  # more is folded
        store.now += 6 * HOUR
        found = reader.health(TASK, "v1")
        assert (found.runs, found.failures) == (2 * (number + 1), number + 1)
        assert found.devices == min(number + 1, 50) + number + 1
        counts.append(row_counts(store)[2])
    assert max(counts) <= 2 * (30 * 4 + 8)  # those of all devices, and without receipts
    assert max(counts[140:]) <= max(counts[:140])


def test_what_is_silent_for_a_month_goes_and_begins_anew(store):
    monitor = Monitor(store, read)

    def take(number, devices, version="v1"):
        monitor.take([frame(number, grouped(devices, "", version, ""))])

    take(1, [(f"d{n}", 1, {"E": 1}) for n in range(2_500)])
    take(2, [("a", 1, {})], "v2")
    for _ in range(30):
        store.now += DAY
        monitor.take([])
    store.now += DAY
    take(3, [("a", 1, {})], "v2")
    monitor.take([])
    assert health(store).devices == 0
    take(4, [("d1", 1, {})])  # while its rows are being deleted
    for _ in range(9):
        monitor.take([])
    assert (health(store).devices, health(store).failures) == (1, 0)
    assert row_counts(store)[:2] == [3, 2 + 2_501]  # of all devices their last versions
    assert health(store, "v2").runs == 2


def test_a_clock_that_is_set_back_changes_no_number(store):
    monitor = Monitor(store)
    for number, hours in enumerate((0, 48, -24, 3, -40, 60)):
        store.now += hours * HOUR
        monitor.take([frame(number, report([("a", 1, {"E": 1}), (f"d{number}", 1, {})]))])
        found = health(store)
        assert (found.runs, found.devices, found.failing_devices) == (
            2 * number + 2,
            number + 2,
            1,
        )


def test_each_device_is_counted_once_with_the_version_that_it_reported_last(store):
    monitor = Monitor(store, read)

    def told(*frames):
        monitor.take(frames)
        with store.reading() as reading:
            return dict(reading.device_counts(TASK))

    devices = [(f"d{n}", 1, {}) for n in range(10)]
    assert told(frame(1, report(devices))) == {"v1": 10}
    assert told(frame(2, report(devices[:3], "v2")), frame(3, report(devices[:4]))) == {"v1": 10}
    assert told(frame(4, report(devices[:3], "v2"))) == {"v1": 7, "v2": 3}
    assert told(*batch(1, partition=1)) == {"v1": 8, "v2": 2}
    for _ in range(40):
        store.now += DAY
        monitor.take([frame(10**6 + store.now, report([("d1", 1, {})], "v2"))])
        counts = told()
    assert counts == {"v2": 3}  # of v1 nobody has told anything for a month


# Receipts


def test_a_device_counts_in_a_group_by_its_receipt(store):
    monitor = Monitor(store, read)
    new = grouped([("a", 5, {"E": 1}), ("b", 1, {})], "new", "v2")
    control = grouped([("c", 2, {"Quarantined": 2})], "control")
    beta = grouped([("tester", 1, {})], "", "v2")
    plain = report([("old", 4, {"E": 4})], "v2")
    assert monitor.take([frame(1, new, control, beta, plain)]) == 1
    found = release_health(store)
    assert (found.new.step.devices, found.new.step.runs, found.new.step.failures) == (2, 6, 1)
    assert (found.new.release.devices, found.new.release.runs) == (3, 7)
    assert (found.control.step.devices, found.control.step.crashing_devices) == (1, 1)
    # a device's first minute in a group is not compared
    whole = found.control.release
    assert (found.control.step, whole.device_minutes) == (
        structs.replace(whole, latency_us={}, output_bytes={}),
        1,
    )
    assert found.new.step.device_minutes == sum(found.new.release.latency_us.values()) - 1 == 2
    in_beta = HealthReader(store).release_health(structs.replace(RELEASE, is_beta=True))
    assert (in_beta.new.step.devices, in_beta.new.step.last_ms) == (3, store.now)
    assert health(store, "v2").devices == 4
    assert found.new.windows == ()  # it is not closed
    shown = monitor.figures()
    assert shown["reports_without_receipt_total"] == {f"{TASK}@v2": 1}
    assert shown["reports_total"] == {"counted": 4, "refused": 0}


@pytest.mark.parametrize("needs_receipts", [False, True])
def test_a_receipt_that_is_not_valid_counts_in_no_group(store, needs_receipts):
    monitor = Monitor(store, read, needs_receipts=needs_receipts)
    good = receipt("a", "v2", "r1", "new")
    tried = [
        receipt("b", "v2", "r1", "new"),
        receipt("a", "v1", "r1", "new"),
        receipt("a", "v2", "r2", "new"),
        receipt("a", "v2", "r1", "control"),
        receipt("a", "v2"),
        receipt("a", "v2", "r1", "new", keys=ReceiptKeys.create()),
        receipt("a", "v2", "r1", "new", 10**12 - 8 * DAY),
        receipt("a", "v2", "r1", "new", 10**12 + HOUR),
        good[:-1],
        "x",
    ]
    frames = []
    for number, token in enumerate(tried):
        made = grouped([("a", 1, {"E": 1})], "new", "v2")
        made.devices[0].receipt = token
        frames.append(frame(number, made))
    taken = monitor.take(frames)
    found = release_health(store)
    assert (found.new.release.devices, found.new.step.devices) == (0, 0)
    assert monitor.counts.wrong == {f"{TASK}@v2": len(tried)}
    if needs_receipts:
        assert (taken, row_counts(store)) == (0, [0, 0, 0, 0])
    else:
        assert (taken, health(store, "v2").devices) == (len(tried), 1)
    assert monitor.take([frame(99, grouped([("a", 1, {})], "new", "v2"))]) == 1
    assert release_health(store).new.step.devices == 1


def test_invented_reports_change_nothing_where_receipts_are_needed(store):
    monitor = Monitor(store, read, needs_receipts=True)
    monitor.take([frame(1, grouped([("a", 3, {})], "new", "v2"))])
    before, rows = release_health(store), row_counts(store)
    for number in range(20):
        invented = [(f"invented-{number}-{n}", 1, {"E": 1}) for n in range(50)]
        forged = grouped(invented, "new", "v2")
        for each in forged.devices:
            each.receipt = "A" * 200
        both = frame(1, report(invented, "v2"), forged, incarnation=f"{number:016x}")
        assert monitor.take([both]) == 0
    assert (release_health(store), row_counts(store)) == (before, rows)
    with store.reading() as reading:
        assert reading.unproven(TASK, "v2") == (1_000, 1_000)


def test_times_of_runs_are_those_of_the_devices_that_count(store):
    monitor = Monitor(store, read)
    mixed = grouped([("a", 5, {}), ("b", 2, {})], "new", "v2")
    mixed.devices[1].receipt = ""
    monitor.take([frame(1, mixed)])
    found = release_health(store)
    assert (found.new.step.runs, sum(found.new.step.latency_us.values())) == (5, 0)
    assert sum(health(store, "v2").latency_us.values()) == 2


def windows(store, group="new"):
    found = getattr(release_health(store), group).windows
    return [(each.failures_at_risk, each.failures_reached) for each in found]


def levels(*devices):
    """Devices as (failed runs before the window, and at its end)."""
    return (
        tuple(sum(before < level for before, _ in devices) for level in LEVELS),
        tuple(sum(before < level <= after for before, after in devices) for level in LEVELS),
    )


def test_each_device_is_at_risk_once_in_a_window(store):
    monitor, number = Monitor(store, read), 0

    def take(*devices, group="new", version="v2"):
        nonlocal number
        number += 1
        monitor.take([frame(number, grouped(devices, group, version))])

    take(("a", 1, {}), ("b", 1, {"E": 1}))
    take(("a", 9, {"E": 9}), ("b", 1, {}))
    store.now += MINUTE
    take(("a", 1, {"E": 1}))
    take(("c", 3, {"E": 3}), group="control", version="v1")
    store.now += MINUTE
    # one that moves takes its number along
    take(("c", 1, {}), ("b", 40, {"E": 40}))
    store.now += MINUTE
    take(("c", 5, {"E": 5}), group="control", version="v1")
    store.now += 2 * MINUTE
    assert windows(store) == [levels((0, 0), (0, 1)), levels((9, 10)), levels((3, 3), (1, 41))]
    assert windows(store, "control") == [levels((0, 3)), levels((3, 8))]


def test_only_closed_windows_after_the_known_ones_are_told(store):
    monitor, reader = Monitor(store, read), HealthReader(store)
    first = store.now // MINUTE
    for number in range(5):
        if number == 2:
            begin_step(store, 1)
        monitor.take([frame(number, grouped([("a", 1, {})], "new", "v2"))])
        told = release_health(store, reader=reader).new.windows
        assert [each.number for each in told] == list(range(first, first + max(0, number - 1)))
        store.now += MINUTE
    late = release_health(store, after=first + 1, step_ms=(first + 2) * MINUTE, reader=reader).new
    assert [each.number for each in late.windows] == [first + 2, first + 3]
    assert (late.step.runs, late.release.runs, late.step.devices) == (3, 5, 1)


# The store


class Failing(Clocked):
    """Its transactions of reports fail as told."""

    error = None

    @contextmanager
    def counting(self):
        with self.store.counting() as transaction:
            transaction.now_ms = lambda: self.now
            yield transaction
            error, self.error = self.error, None
            if error is not None:
                raise error


@pytest.fixture
def failing(store):
    return Failing(store.store, store.now)


def test_a_batch_that_was_not_stored_is_not_counted_and_comes_again(failing):
    monitor = Monitor(failing)
    monitor.take(batch(1))
    failing.error = ServiceUnreachableError("away")
    both = [*batch(2), *batch(1, version="v2", partition=1)]
    with pytest.raises(ServiceUnreachableError, match="away"):
        monitor.take(both)
    assert (health(failing).runs, health(failing, "v2").runs) == (1, 0)
    assert monitor.counts.frames == 1
    assert monitor.take(both) == 2
    assert (health(failing).runs, health(failing, "v2").runs) == (2, 1)


def test_a_reader_says_that_nothing_is_known(store):
    store.close()
    with pytest.raises(
        ServiceUnreachableError, match="the health of shop/ipv@v1 cannot be read now"
    ):
        health(store)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_are_at_most_one_percent_off(share):
    values = sorted((n * 7919 % 10_000 + 1) ** 1.7 for n in range(5_000))
    buckets = {}
    for value in values:
        buckets[bucket_of(value)] = buckets.get(bucket_of(value), 0) + 1
    exact = values[int(share * (len(values) - 1))]
    assert abs(percentile(buckets, share) / exact - 1) < 0.0101
    assert percentile({}, share) is None
