"""Devices that lie, from their reports to what the gates decide; and what of it leaves a row."""

import shutil
from contextlib import closing
from itertools import count
from random import Random

import numpy as np
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
    publish,
    receipt,
    report,
)
from walle_deploy.model.health import ReleaseHealthQuery
from walle_deploy.model.receipts import Receipt, ReceiptKeys
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.transport import read_batch
from walle_deploy.release.gates import judge
from walle_deploy.release.limits import Gates
from walle_deploy.release.memory import Memory, look
from walle_deploy.store.receipt_keys import StoredReceiptKeys
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.report_batch import encode_batch

DAY = 24 * 60 * MINUTE
NOW = 10**12
TABLES = ("walle_scopes", "walle_counted", "walle_windows", "walle_marks")
USUAL_US, SLOW_US = 20_000, 60_000
VERSIONS = {"new": "v2", "control": "v1"}
QUERY = ReleaseHealthQuery(release_id="r1", task=TASK, version="v2", before="v1", step_ms=0)


def read(token):
    return KEYS.read(token, NOW)


@pytest.fixture
def store(tmp_path):
    with closing(SqliteStore(tmp_path / "releases.db")) as plain:
        publish(plain, "v0", "v1", "v2")
        yield Clocked(plain)


def rows(store):
    found = store.store._connection
    return [list(found.execute(f"SELECT * FROM {each} ORDER BY 1, 2")) for each in TABLES]  # noqa: S608 - ours


def unproven(store):
    with store.reading() as reading:
        return {version: reading.unproven(TASK, version) for version in ("v1", "v2")}


# What one device can weigh


def fleet_reports(version, us, failing=0.0):
    """Half of 2,000 devices, one run each: in ten reports, none of a liar."""
    name, rng = {"v2": "new", "v1": "control"}[version], np.random.default_rng(1)
    for part in range(10):
        devices = [(f"{version}-{part}-{n}", 1, {}) for n in range(99)]
        devices = [(d, 1, {"E": 1} if rng.random() < failing else {}) for d, _, _ in devices]
        made = grouped(devices, name, version)
        times = rng.normal(bucket_of(us), 15, 99).astype(int)
        made.latency_us = {int(each): int((times == each).sum()) for each in set(times)}
        yield made


def lies(us, runs, failures):
    """One report each of ten liars of a hundred devices that have the new version."""
    for number in range(10):
        made = grouped([(f"liar-{number}", runs, {"E": failures} if failures else {})], "new", "v2")
        made.latency_us = {bucket_of(us): runs}
        yield made


def decided(store, us, lie_us, *, failing=0.0, runs=1, frames=1, failures=0):
    """Return what each gate says of a version whose runs take so long, liars beside it."""
    monitor, reader, numbers = (
        Monitor(store, read, needs_receipts=True),
        HealthReader(store),
        count(),
    )
    for _ in range(4):
        for _ in range(frames):  # a liar is there before and after all others
            monitor.take([frame(next(numbers), *lies(lie_us, runs, failures))])
        both = (*fleet_reports("v2", us, failing), *fleet_reports("v1", USUAL_US))
        monitor.take([frame(next(numbers), *both)])
        monitor.take([frame(next(numbers), *lies(lie_us, runs, failures))])
        store.now += MINUTE
    store.now += 2 * MINUTE
    memory = look(Memory(), Gates(), reader.release_health(QUERY), 1, control_percent=50.0)
    return {each.gate: each.outcome for each in judge(Gates(), memory).verdicts}


HUGE = {"runs": 10**7, "frames": 30}


@pytest.mark.parametrize(
    ("us", "lie_us", "failing", "stopped"),
    [
        (USUAL_US, USUAL_US, 0.0, set()),
        (SLOW_US, USUAL_US, 0.0, {"latency"}),
        (USUAL_US, SLOW_US, 0.0, set()),
        (USUAL_US, USUAL_US, 0.05, {"failures"}),
    ],
)
def test_ten_million_runs_of_one_percent_of_the_devices_change_no_decision(
    store, tmp_path, us, lie_us, failing, stopped
):
    found = decided(store, us, lie_us, failing=failing, **HUGE)
    assert {gate for gate, outcome in found.items() if outcome == "stop"} == stopped
    with closing(SqliteStore(tmp_path / "other.db")) as other:
        publish(other, "v0", "v1", "v2")
        assert decided(Clocked(other), us, lie_us, failing=failing) == found


def test_failures_of_one_device_are_one_failing_device_however_many(store):
    monitor = Monitor(store, read, needs_receipts=True)
    for number in range(300):
        monitor.take([frame(number, grouped([("liar", 10**7, {"E": 10**7})], "new", "v2"))])
    monitor.take([frame(900, grouped([(f"d{n}", 1, {}) for n in range(50)], "new", "v2"))])
    monitor.take([frame(901, grouped([(f"c{n}", 1, {}) for n in range(50)], "control", "v1"))])
    store.now += 3 * MINUTE
    found = HealthReader(store).release_health(QUERY).new
    assert (found.step.devices, found.step.failing_devices, found.step.device_minutes) == (
        51,
        1,
        51,
    )
    [window] = found.windows
    assert (window.failures_at_risk[0], window.failures_reached[0]) == (51, 1)


def test_a_device_is_compared_once_a_step_however_often_it_runs(store):
    """Else a few that run always would outweigh all others, whoever they are."""
    monitor, reader, numbers = Monitor(store, read), HealthReader(store), count()
    for step in range(1, 4):
        begin_step(store, step)
        query = structs.replace(QUERY, step_ms=store.now)
        for minute in range(20):
            devices = ["always", *(["seldom"] if minute in {3, 12} else [])]
            for each in devices:
                made = grouped([(each, 9, {})], "new", "v2")
                made.latency_us = {bucket_of(SLOW_US if each == "always" else USUAL_US): 9}
                monitor.take([frame(next(numbers), made)])
            store.now += MINUTE
        found = reader.release_health(query).new.step
        assert found.latency_us == {bucket_of(USUAL_US): 1, bucket_of(SLOW_US): 1}, step
        assert found.device_minutes == 22


def test_a_device_that_just_got_the_version_is_compared_as_soon_as_one_that_never_gets_it(store):
    """Else those that run often, and are slower, would be most of the new ones early in a step."""
    monitor, reader, numbers = Monitor(store, read), HealthReader(store), count()

    def take(name, devices):
        made = [grouped([(f"{name}-{each}", 1, {})], name, VERSIONS[name]) for each in devices]
        for each, report_ in zip(devices, made, strict=True):
            report_.latency_us = {bucket_of(SLOW_US if each < 10 else USUAL_US): 1}
        monitor.take([frame(next(numbers), *made)])

    for _ in range(2):
        take("control", range(100))
        store.now += MINUTE
    begin_step(store, 1)
    # ten devices run each minute, of the others each second one once, and a tenth twice
    for devices in ((*range(10), *range(50, 100)), range(10), (*range(10), *range(50, 60))):
        take("control", devices)
        take("new", devices)
        store.now += MINUTE
    found = reader.release_health(structs.replace(QUERY, step_ms=store.now - 3 * MINUTE))
    assert found.new.step.latency_us == found.control.step.latency_us
    assert found.new.step.latency_us == {bucket_of(SLOW_US): 10, bucket_of(USUAL_US): 10}


# Invented reports leave no row


def invented():
    """Reports that count for nothing where receipts are needed, by what is wrong."""

    def made(token, *, version="v2", release="r1", name="new", device="d-1", task=TASK):
        found = report([(device, 3, {"E": 3})], version, task)
        found.release, found.group = release, name
        found.devices[0].receipt = token
        return found

    good = receipt("d-1", "v2", "r1", "new")
    return {
        "no receipt": made("", release="", name=""),
        "an unknown version": made(receipt("d-1", "v666"), version="v666", release="", name=""),
        "an unknown task": made(receipt("d-1", "v1", task="a/b"), task="a/b", release="", name=""),
        "a version with a zero": made("", version="v\0"),
        "an unknown release": made(good, release="r666"),
        "another group": made(good, name="control"),
        "another version": made(good, version="v1"),
        "of another device": made(receipt("d-2", "v2", "r1", "new")),
        "forged": made("A" * len(good)),
        "cut": made(good[:-4]),
        "of another fleet": made(receipt("d-1", "v2", "r1", "new", keys=ReceiptKeys.create())),
        "expired": made(receipt("d-1", "v2", "r1", "new", NOW - 8 * DAY)),
        "of a clock a day ahead": made(receipt("d-1", "v2", "r1", "new", NOW + DAY)),
    }


@pytest.mark.parametrize("device", ["", "d-1"])
@pytest.mark.parametrize("what", invented())
def test_what_is_invented_leaves_no_row(store, what, device):
    monitor = Monitor(store, read, needs_receipts=True)

    def post(*frames):
        return monitor.take(read_batch(encode_batch(frames), device), device)

    wrong = [frame(n, invented()[what], incarnation=f"{n:016x}") for n in range(50)]
    is_published = not what.startswith(("an unknown version", "an unknown task", "a version"))
    assert (post(*wrong), rows(store)) == (0, [[], [], [], []])
    # that there were some is shown, by the version
    assert sum(map(sum, unproven(store).values())) == 50 * is_published
    # nor beside what counts
    assert post(frame(1, grouped([("d-1", 1, {})], "new", "v2"))) == 1
    before, known = rows(store), HealthReader(store).release_health(QUERY)
    assert (post(*wrong), rows(store)) == (0, before)
    assert HealthReader(store).release_health(QUERY) == known


def test_what_comes_again_leaves_no_row(store):
    monitor = Monitor(store, read, needs_receipts=True)
    batch = encode_batch([frame(1, grouped([("d-1", 1, {"E": 1})], "new", "v2"))])
    assert monitor.take(read_batch(batch, "d-1"), "d-1") == 1
    before = rows(store)
    store.now += 10 * MINUTE
    assert [monitor.take(read_batch(batch, "d-1"), "d-1") for _ in range(20)] == [0] * 20
    assert rows(store) == before


def test_one_device_leaves_few_marks_of_however_many_data_directories_through_a_relay(store):
    monitor = Monitor(store, read, needs_receipts=True)
    honest = frame(1, grouped([(f"d-{n}", 1, {}) for n in range(50)], "new", "v2"))
    assert monitor.take([honest]) == 1
    for turn in range(3):
        made = report([("d-1", 1, {})], "v2")
        made.devices[0].receipt = receipt("d-1", "v2")
        beside = report([(f"nobody-{turn}", 1, {})], "v2")
        frames = [frame(1, made, beside, incarnation=f"{turn}{n:015x}") for n in range(100)]
        assert monitor.take(frames) == 100
        store.now += MINUTE
    assert len(rows(store)[3]) == 49 + 32
    assert monitor.take([honest]) == 0


def test_reports_without_receipts_are_shown_where_nothing_else_comes(store):
    monitor = Monitor(store, read, needs_receipts=True)
    for day in range(40):
        monitor.take([frame(day, report([(f"old-{day}-{n}", 1, {}) for n in range(20)], "v2"))])
        store.now += DAY
    assert (unproven(store), rows(store)) == ({"v1": (0, 0), "v2": (800, 0)}, [[], [], [], []])


def test_a_receipt_that_two_share_makes_them_one_device(store):
    monitor = Monitor(store, read, needs_receipts=True)
    for number in range(20):  # hosts with a copy of one device's files, through a relay
        made = grouped([("d-1", 1, {"E": 1})], "new", "v2")
        monitor.take([frame(1, made, incarnation=f"{number:016x}")])
    found = HealthReader(store).release_health(QUERY).new.step
    assert (found.devices, found.failing_devices, found.device_minutes) == (1, 1, 1)


# Clocks, late streams, backups


@pytest.mark.parametrize("wrong_ms", [-DAY, DAY])
def test_the_clock_of_a_device_decides_nothing(store, wrong_ms):
    monitor = Monitor(store, read, needs_receipts=True)
    made = grouped([("d-1", 1, {"E": 1})], "new", "v2")
    made.from_ms, made.to_ms = store.now + wrong_ms, store.now + wrong_ms + 1
    monitor.take([frame(1, made)])
    window = store.now // MINUTE
    store.now += 3 * MINUTE
    [found] = HealthReader(store).release_health(QUERY).new.windows
    assert (found.number, found.failures_reached[0]) == (window, 1)


@pytest.mark.parametrize(
    ("moved_ms", "back_ms"),
    [
        *((wrong, -wrong) for wrong in (-DAY, 400 * DAY)),
        *((wrong, 0) for wrong in (-140 * MINUTE, -15 * MINUTE, 2 * DAY)),
        *(pytest.param(wrong, -wrong, marks=pytest.mark.full) for wrong in (0, DAY, 2 * DAY)),
    ],
)
def test_a_clock_that_is_wrong_blinds_no_gate(store, moved_ms, back_ms):
    """The version begins to fail 15 minutes after the clock moved, 5 after it moved back."""
    monitor, reader, memory = (
        Monitor(store, read, needs_receipts=True),
        HealthReader(store),
        Memory(),
    )
    begin_step(store, 1)
    begun_ms = store.now
    for minute in range(40):
        store.now += MINUTE + moved_ms * (minute == 10) + back_ms * (minute == 20)
        for name, version in (("new", "v2"), ("control", "v1")):
            fails = version == "v2" and minute >= 25
            devices = [(f"{name}-{n}", 1, {"E": 1} if fails and n < 5 else {}) for n in range(100)]
            made = grouped(devices, name, version)
            made.latency_us = {bucket_of(1_000 * (1 + 2 * fails)): 100}
            monitor.take([frame(minute, made, partition=name == "new")])
        monitor.take([])  # more is folded
        query = structs.replace(QUERY, step_ms=begun_ms, after=memory.window)
        memory = look(memory, Gates(), reader.release_health(query), 1, control_percent=50.0)
        verdict = judge(Gates(), memory).verdicts[0]
        assert (verdict.outcome == "stop") == (minute >= 27), minute
    # every minute counts once; of five devices the first failure is in minute 25
    assert memory.failures.at_risk == (38 * 100 - 12 * 5, 38 * 100)
    assert memory.health.new.step.device_minutes == 40 * 100


@pytest.mark.parametrize("late", [{"new"}, {"control"}, {"new", "control"}])
def test_streams_that_start_an_hour_late_stop_no_version_like_the_one_before(store, late):
    """Of all runs 5 % fail under either version; whoever is late has an hour arrive at once."""
    monitor, reader, rng = Monitor(store, read, needs_receipts=True), HealthReader(store), Random(3)
    memory, waiting = Memory(), {"new": [], "control": []}
    for minute in range(80):
        for name, version in (("new", "v2"), ("control", "v1")):
            devices = [
                (f"{name}-{n}", 1, {"E": 1} if rng.random() < 0.05 else {})
                for n in range(150)
                if rng.random() < 0.28
            ]
            made = frame(minute, grouped(devices, name, version), partition=name == "new")
            waiting[name].append(made)
            if name not in late or minute >= 60:
                monitor.take(waiting[name])
                waiting[name] = []
        store.now += MINUTE
        seen = reader.release_health(structs.replace(QUERY, after=memory.window))
        memory = look(memory, Gates(), seen, 1, control_percent=50.0)
        assert judge(Gates(), memory).outcome != "stop"
    assert sum(memory.failures.reached) > 30


def test_after_a_backup_of_yesterday_receipts_of_keys_that_are_gone_count_for_nothing(tmp_path):
    path, backup = tmp_path / "releases.db", tmp_path / "backup.db"
    with closing(Clocked(SqliteStore(path))) as store:
        publish(store.store, "v0", "v1", "v2")
        yesterday = StoredReceiptKeys(store).keys
        shutil.copy(path, backup)
        shutil.copy(f"{path}-wal", f"{backup}-wal")
        store.now += DAY + 3 * MINUTE
        StoredReceiptKeys(store).refresh()
        store.now += 3 * MINUTE
        today, now_ms = StoredReceiptKeys(store).keys, store.now
    with closing(Clocked(SqliteStore(backup), now_ms)) as store:
        source = StoredReceiptKeys(store)
        monitor = Monitor(store, lambda token: source.keys.read(token, now_ms), needs_receipts=True)

        def told(keys, number):
            made = grouped([("d-1", 1, {})], "new", "v2")
            said = Receipt("d-1", TASK, "v2", "r1", "new", now_ms)
            made.devices[0].receipt = keys.issue(said)
            return monitor.take([frame(number, made)])

        assert (told(today, 1), rows(store)[1:]) == (0, [[], [], []])
        assert monitor.counts.wrong == {f"{TASK}@v2": 1}
        # the service sees that these keys are not its own, and gives others
        assert (told(yesterday, 2), told(source.keys, 3)) == (1, 1)
