"""Reports count every committed run once and change nothing of features and state."""

from types import SimpleNamespace

import msgspec
import pytest

from tests.property.test_recovery_property import Life, Tunnel, deliver
from tests.unit.stream.test_machine import TRIGGERS, make_events
from walle_stream.actors.parts import reports as module
from walle_stream.actors.parts.reports import Reports
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Delivery
from walle_stream.errors import StoreError
from walle_stream.ports import EventBatch, Proof, SourceBatch, SourceCounts
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.vm.results import GroupResult, RunResult
from walle_stream.wire.buckets import CALL_BUCKETS, bucket_of
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body
from walle_stream.wire.reports import decode_reports, is_reports

pytestmark = pytest.mark.actors

LABELS = {"t": ("shop/t", "v1")}


def opening(labels):
    return SimpleNamespace(sets=SimpleNamespace(labels=labels))


def group(device, *runs):
    return GroupResult(device, {}, list(runs))


def good(size):
    return RunResult(ok=True, emits=[(b"x" * (size - 1), b"y")])


def bad(error):
    return RunResult(ok=False, error=error)


def decoded(bodies):
    return [report for body in bodies for report in decode_reports(body)]


def test_runs_are_counted_by_device_class_time_and_size():
    reports = Reports(LABELS, 1_000, 0)
    found = [
        group("a", good(10), good(10), bad("KeyError"), bad("RunStopped")),
        group("b", good(500), bad("Quarantined")),
    ]
    reports.add("t", found, 0.6)
    assert reports.due(5_000) == []  # nothing is committed yet
    reports.committed(None)
    [report] = decoded(reports.due(5_000))
    assert (report.task, report.version, report.from_ms, report.to_ms) == ("shop/t", "v1", 0, 5_000)
    a, b = report.devices
    assert (a.device_id, a.runs, a.failures) == ("a", 4, {"KeyError": 1, "RunStopped": 1})
    assert (a.strikes, a.crashes) == (1, 0)
    assert (b.runs, b.failures, b.strikes, b.crashes) == (2, {"Quarantined": 1}, 0, 1)
    assert report.latency_us == {2 * CALL_BUCKETS + bucket_of(100): 6}  # 0.6 ms by 6 runs
    assert report.output_bytes == {bucket_of(11): 2, bucket_of(501): 1}


def test_a_report_comes_when_it_is_time_or_at_the_end_and_is_sent_once():
    reports = Reports(LABELS, 1_000, 0)
    for _ in range(2):
        reports.add("t", [group("a", good(1))], 1.0)
        reports.committed(None)
    assert not reports.is_due(999)
    assert reports.is_due(999, is_last=True)
    assert reports.is_due(1_000)
    assert reports.is_due(-5)  # the wall clock was set back
    [report] = decoded(reports.due(1_000))
    assert report.devices[0].runs == 2
    reports.restart(opening(LABELS))  # the commit failed: it is not sent
    [again] = decoded(reports.due(1_001))
    assert again.devices == report.devices
    reports.committed(None)
    assert not reports.is_due(10**9, is_last=True)


def test_tasks_without_a_label_are_not_reported_and_labels_may_change():
    reports = Reports(LABELS, 0, 0)
    reports.add("other", [group("a", good(1))], 1.0)
    reports.add("t", [group("a", good(1))], 1.0)
    reports.committed(None)
    reports.restart(opening({"t": ("shop/t", "v2")}))
    reports.add("t", [group("a", good(1)), group("b", good(1))], 1.0)
    reports.committed(None)
    found = {each.version: len(each.devices) for each in decoded(reports.due(1))}
    assert found == {"v1": 1, "v2": 2}


def test_many_devices_are_due_at_once_and_cut(monkeypatch):
    monkeypatch.setattr(module, "FRAME_DEVICES", 3)
    reports = Reports(LABELS, 10**9, 0)
    reports.add("t", [group(str(n), good(1), bad("E")) for n in range(7)], 7.0)
    reports.committed(None)
    found = decoded(reports.due(1))
    assert [len(each.devices) for each in found] == [3, 3, 1]
    assert sum(sum(each.latency_us.values()) for each in found) == 14
    assert sum(sum(each.output_bytes.values()) for each in found) == 7


def test_classes_of_errors_are_bounded():
    reports = Reports(LABELS, 0, 0)
    reports.add("t", [group("a", *(bad(f"E{n}") for n in range(100)), bad(""))], 1.0)
    reports.committed(None)
    [report] = decoded(reports.due(1))
    failures = report.devices[0].failures
    assert (len(failures), sum(failures.values())) == (17, 101)
    assert failures["(other)"] == 85


def test_devices_of_two_groups_are_never_in_one_report():
    held = {
        ("a", "shop/t", "v1"): Proof("ra", "r", "new"),
        ("b", "shop/t", "v1"): Proof("rb", "r", "control"),
        ("c", "shop/t", "v1"): Proof("rc", "r", "new"),
    }
    asked = []

    def proof_of(*key):
        asked.append(key)
        return held.get(key, Proof())

    reports = Reports(LABELS, 0, 0, proof_of=proof_of)
    for _ in range(2):
        reports.add("t", [group(each, good(9), bad("E")) for each in "abcd"], 8.0)
        reports.committed(None)
    reports.add_refusal(("shop/t", "v1"), "e", "not installed: E")
    assert [key[0] for key in asked] == list("abcde")  # once for each device and report
    found = {
        (each.release, each.group): (
            [(one.device_id, one.receipt, one.runs) for one in each.devices],
            sum(each.latency_us.values()),
            sum(each.output_bytes.values()),
        )
        for each in decoded(reports.due(1))
    }
    assert found == {
        ("r", "new"): ([("a", "ra", 4), ("c", "rc", 4)], 8, 4),
        ("r", "control"): ([("b", "rb", 4)], 4, 2),
        ("", ""): ([("d", "", 4), ("e", "", 1)], 4, 2),
    }
    # what came meanwhile is shown with the next report
    held["d", "shop/t", "v1"] = Proof("rd", "r", "new")
    reports.committed(None)
    reports.add("t", [group("d", good(1))], 1.0)
    reports.committed(None)
    [report] = decoded(reports.due(2))
    assert (report.group, report.devices[0].receipt) == ("new", "rd")


# In a partition


class Watched(Tunnel):
    def __init__(self):
        super().__init__()
        self.bodies = {}

    def send(self, frames):
        super().send(frames)
        for _, number, frame in frames:
            body = decode_uplink(frame).body
            assert self.bodies.setdefault(number, body) == body  # the same again, never another

    @property
    def reports(self):
        return decoded(body for body in self.bodies.values() if is_reports(body))

    @property
    def features(self):
        bodies = [body for body in self.bodies.values() if not is_reports(body)]
        return [record for body in bodies for record in decode_body(body)]


def live(folder, every_ms, deaths=(), ends=()):
    folder.mkdir()
    life = Life(folder, 30, 5, SequencePolicy(page_timeout_ms=50, out_of_order_ms=5))
    life.tunnel = Watched()
    labels = {task: (f"shop/{task}", "v1") for task in TRIGGERS}
    life.plan = msgspec.structs.replace(life.plan, report_ms=every_ms, reported_as=labels)
    found = life.run(make_events(11), range(10, 100, 10), deaths, ends)
    with PartitionStore.open(folder / "rows", read_only=True) as store:
        counters = PartitionRows(store).head().counters
    return life.tunnel, found, counters


@pytest.mark.parametrize("ends", [(), (3, 6)])
@pytest.mark.parametrize("every_ms", [1, 10**9])
def test_each_run_of_a_partition_is_reported_once_and_nothing_else_changes(
    tmp_path, every_ms, ends
):
    plain, expected, _ = live(tmp_path / "plain", 0)
    tunnel, found, counters = live(tmp_path / "reports", every_ms, (), ends)
    assert found == expected
    assert tunnel.features == plain.features
    assert not plain.reports
    runs = sum(device.runs for each in tunnel.reports for device in each.devices)
    assert runs == counters.task_runs > 0


def test_a_death_costs_what_was_not_sent_and_doubles_nothing(tmp_path):
    _, expected, _ = live(tmp_path / "plain", 0)
    tunnel, found, counters = live(tmp_path / "reports", 1, {2, 5})
    assert found == expected
    runs = sum(device.runs for each in tunnel.reports for device in each.devices)
    assert 0 < runs <= counters.task_runs


def test_a_commit_that_fails_counts_its_runs_once(tmp_path, monkeypatch):
    life = Life(tmp_path, 30, 5, SequencePolicy(page_timeout_ms=50))
    life.tunnel = Watched()
    life.plan = msgspec.structs.replace(
        life.plan, report_ms=1, reported_as={task: (task, "1") for task in TRIGGERS}
    )
    host = life.open()
    commit, failures = PartitionRows.commit, iter([True, False, True])

    def fail(self, head, offset):
        if offset is not None and next(failures, False):
            raise StoreError("full")
        commit(self, head, offset)

    monkeypatch.setattr(PartitionRows, "commit", fail)
    events = make_events(11)
    for number, part in enumerate((events[:60], events[60:]), 1):
        batch = SourceBatch(
            0, EventBatch(part), b"%d" % number, SourceCounts(), [], is_end=number == 2
        )
        delivery = Delivery(batch, 0.0)
        while True:
            try:
                deliver(host, delivery)
            except StoreError:
                host.restart()
            else:
                break
    host.close(float("inf"))
    runs = sum(device.runs for each in life.tunnel.reports for device in each.devices)
    assert runs == host.status().counters.task_runs > 0
