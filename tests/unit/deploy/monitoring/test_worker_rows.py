"""Several workers over one store: which of them counts, and who has the rows of the others."""

import random
import threading

import pytest

from tests.unit.deploy.monitoring.reporting import frame, report
from walle_deploy.monitoring.history import VersionHistory
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.monitoring.rows import ask, ask_rows
from walle_deploy.monitoring.snapshots import SqliteSnapshots
from walle_deploy.monitoring.worker_rows import SILENT_MS
from walle_stream.errors import ConflictError, ServiceUnreachableError, StoreError

TASK, MINUTE = "shop/ipv", 60_000


class Clock:
    now = 10**12

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with SqliteSnapshots(tmp_path / "monitor.db") as found:
        yield found


def batch(*numbers, version="v1", **where):
    return [frame(n, report([(f"d{n}", 1, {})], version), **where) for n in numbers]


def workers(store):
    return sorted(key.removeprefix("worker/") for key in store.load("worker/"))


def runs(store, version="v1", since_ms=0):
    return HealthReader(store).health(TASK, version, since_ms).runs


def test_a_batch_that_is_sent_to_another_worker_again_counts_once(store, clock):
    one, two = (Monitor(store, name, now_ms=clock) for name in ("one", "two"))
    assert one.take(batch(1, 2, 3)) == 3
    assert two.take(batch(1, 2, 3)) == 0
    assert two.take(batch(2, 3, 4, 5)) == 2
    assert one.take(batch(4, 5, 6)) == 1
    assert runs(store) == 6
    assert (one.counts.frames_again, two.counts.frames_again) == (2, 5)


class Meanwhile:
    """A store where something happens just before a write, once."""

    def __init__(self, store, act):
        self.load, self.read = store.load, store.read
        self._store, self._act = store, act

    def save(self, rows, expected=None):
        act, self._act = self._act, None
        if act:
            act()
        self._store.save(rows, expected)


def test_what_another_counted_just_before_the_write_is_not_counted_here(store, clock):
    other = Monitor(store, "other", now_ms=clock)
    between = Meanwhile(store, lambda: other.take(batch(1, 2, 3)))
    monitor = Monitor(between, "one", now_ms=clock)
    assert monitor.take([*batch(2, 3, 4), *batch(7, version="v2", partition=1)]) == 2
    assert (runs(store), runs(store, "v2")) == (4, 1)
    assert monitor.health(TASK, "v1").runs == 1
    assert (monitor.counts.frames, monitor.counts.frames_again) == (2, 2)


def test_who_is_always_late_gives_up_and_has_counted_nothing(store, clock):
    def refuse(*_):
        raise ConflictError("late")

    late = Meanwhile(store, None)
    late.save = refuse
    monitor = Monitor(late, "late", now_ms=clock)
    with pytest.raises(ConflictError, match="late"):
        monitor.take(batch(1))
    assert (monitor.counts.frames, runs(store)) == (0, 0)
    late.save = store.save
    assert monitor.take(batch(1)) == 1
    assert monitor.health(TASK, "v1").runs == 1


def test_two_of_one_name_count_one_after_the_other(store, clock):
    monitors = [Monitor(store, "0", now_ms=clock) for _ in range(2)]
    for number in range(6):
        assert monitors[number % 2].take(batch(number)) == 1
        assert monitors[number % 2].health(TASK, "v1").runs == number + 1
    assert runs(store) == 6


def test_one_that_was_given_up_twice_is_not_what_it_was(store, clock):
    first = Monitor(store, "0", now_ms=clock)
    first.take(batch(1))
    first.close()
    late, other = (Monitor(store, "0", now_ms=clock) for _ in range(2))
    other.take(batch(2))
    other.close()
    late.take(batch(3))
    assert runs(store) == 3


def test_of_what_is_asked_for_the_latest_moments_are_kept(store):
    for since_ms in (50, 10, 20, 30, 40, 60):
        ask(store, "shop/ipv@v1", since_ms)
    ask(store, "shop/ipv@v10", 5)
    assert ask_rows(store) == {"shop/ipv@v1": [30, 40, 50, 60], "shop/ipv@v10": [5]}
    assert len(store.load("ask/")) == 5


def test_a_worker_that_was_taken_over_forgets_all_versions(store, clock):
    gone, other = (Monitor(store, name, now_ms=clock) for name in ("gone", "other"))
    gone.take(batch(1, version="v1"))
    clock.now += SILENT_MS + 1
    other.take(batch(1, partition=1, version="v2"))
    gone.take(batch(2, version="v2"))
    gone.take(batch(3, version="v1"))
    assert (runs(store, "v1"), runs(store, "v2")) == (2, 2)
    assert gone.health(TASK, "v1").runs == 1


def test_a_worker_that_ended_or_is_silent_is_taken_over(store, clock):
    ended, killed = (Monitor(store, name, now_ms=clock) for name in ("ended", "killed"))
    ended.take(batch(1))
    killed.take(batch(2, partition=1))
    ended.close()
    ended.close()
    monitor = Monitor(store, "new", now_ms=clock)
    monitor.take(batch(3, partition=2))
    assert workers(store) == ["killed", "new"]
    clock.now += SILENT_MS + 1
    monitor.take(batch(4, partition=2))
    assert workers(store) == ["new"]
    assert runs(store) == monitor.health(TASK, "v1").runs == 4
    assert not [key for key in store.load("count/") if not key.startswith("count/new/")]


def test_a_worker_that_was_taken_over_while_it_stood_still_goes_on_from_nothing(store, clock):
    still, other = (Monitor(store, name, now_ms=clock) for name in ("still", "other"))
    still.take(batch(1, 2))

    def take_over():
        clock.now += SILENT_MS + 1
        other.take(batch(5, partition=1))
        assert workers(store) == ["other"]

    still._rows._store = Meanwhile(store, take_over)  # it stands still within a write
    assert still.take(batch(2, 3)) == 1
    assert workers(store) == ["other", "still"]
    assert (other.health(TASK, "v1").runs, still.health(TASK, "v1").runs) == (3, 1)
    assert runs(store) == 4


def test_one_that_comes_back_while_it_is_taken_over_keeps_its_rows(store, clock):
    back = Monitor(store, "back", now_ms=clock)
    back.take(batch(1))
    clock.now += SILENT_MS + 1
    other = Monitor(Meanwhile(store, lambda: back.take(batch(2))), "other", now_ms=clock)
    assert other.take(batch(2, 3)) == 1
    assert workers(store) == ["back", "other"]
    assert (runs(store), other.health(TASK, "v1").runs) == (3, 1)


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_hundred_restarts_leave_the_rows_and_the_health_of_one_worker(
    store, clock, tmp_path, end
):
    with SqliteSnapshots(tmp_path / "alone.db") as alone:
        whole = Monitor(alone, "0", now_ms=clock)
        since_ms = clock.now + 30 * MINUTE
        for number in range(100):
            worker = Monitor(store, f"w{number}", now_ms=clock)
            if number == 25:
                runs(store, since_ms=since_ms)
                runs(alone, since_ms=since_ms)
            for monitor in (worker, whole):
                monitor.take(batch(number))
            clock.now += MINUTE + 1
            if end == "close":
                worker.close()
        monitor = Monitor(store, "last", now_ms=clock)
        for each in (monitor, whole):
            each.take(batch(1_000))
        assert workers(store) == ["last"]
        # those of slots that are past stay in the ring
        assert len(store.load("")) <= len(alone.load("")) + 2
        for moment in (0, since_ms):
            found = [HealthReader(each).health(TASK, "v1", moment) for each in (store, alone)]
            assert found[0] == found[1]
        assert found[0].runs == 71
        assert Monitor(store, "last", now_ms=clock).recent(TASK, "v1") == whole.recent(TASK, "v1")


def test_restarts_at_once_are_one_worker_after_a_while(store, clock):
    for number in range(20):
        Monitor(store, f"w{number}", now_ms=clock).take(batch(number))
    clock.now += SILENT_MS + 1
    Monitor(store, "last", now_ms=clock).take(batch(20))
    assert (workers(store), runs(store)) == (["last"], 21)


def test_rows_of_walle_0_1_are_taken_over_with_their_marks(store, clock):
    old = Monitor(store, "old", now_ms=clock)
    old.take([*batch(4, 5), *batch(9, partition=1)])
    marks = store.load("mark/")
    for name, less in (("old", 0), ("older", 1)):
        store.save({f"worker/{name}": b""})
        for key, number in marks.items():
            store.save({key: None, f"mark/{name}/{key[5:]}": b"%d" % (int(number) - less)})
    monitor = Monitor(store, "new", now_ms=clock)
    assert monitor.take([*batch(4, 5, 6), *batch(9, partition=1)]) == 1
    assert (runs(store), workers(store)) == (4, ["new"])
    assert set(store.load("mark/")) == set(marks)


def test_a_reader_sees_each_frame_once_while_workers_come_and_go(store, clock):
    Monitor(store, "a", now_ms=clock).take(batch(1, 2))
    clock.now += SILENT_MS + 1

    class Reading(Meanwhile):
        def load(self, *prefixes):
            found = store.load(*prefixes)
            act, self._act = self._act, None
            if act:
                act()
            return found

    def take_over():
        Monitor(store, "b", now_ms=clock).take(batch(3))

    between = Reading.__new__(Reading)
    between._act = take_over
    assert HealthReader(between).health(TASK, "v1").runs == 3


def test_batches_of_many_threads_are_stored_together(store, clock):
    monitor, inside, go_on = Monitor(store, now_ms=clock), threading.Event(), threading.Event()
    saves = []
    save = store.save

    def slow_save(*given):
        saves.append(given)
        inside.set()
        go_on.wait()
        save(*given)

    store.save = slow_save
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(monitor.take(batch(1, partition=n % 8))))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    inside.wait()
    while len(monitor._waiting) < 15:
        pass
    go_on.set()
    for thread in threads:
        thread.join()
    assert (sorted(found), len(saves)) == ([0] * 8 + [1] * 8, 2)
    assert runs(store) == 8


def test_of_threads_that_wait_only_the_one_whose_write_fails_hears_of_it(store, clock):
    monitor, go_on = Monitor(store, now_ms=clock), threading.Event()
    inside = threading.Event()
    save, found, failed = store.save, [], []

    def fail_first(*_):
        store.save = save
        inside.set()
        go_on.wait()
        raise StoreError("away")

    def take(partition):
        try:
            found.append(monitor.take(batch(1, partition=partition)))
        except StoreError as error:
            failed.append(error)

    store.save = fail_first
    threads = [threading.Thread(target=take, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    inside.wait()
    go_on.set()
    for thread in threads:
        thread.join()
    assert (len(failed), found, runs(store)) == (1, [1, 1, 1], 3)
    assert monitor.health(TASK, "v1").runs == 3


def test_reports_of_a_version_that_could_not_be_looked_up_come_again(store, clock):
    away = [ServiceUnreachableError("away")]

    def is_known(_task, version):
        if version == "v2" and away:
            raise away.pop()
        return True

    monitor = Monitor(store, now_ms=clock, is_known=is_known)
    both = [*batch(1), *batch(2, version="v2")]
    with pytest.raises(ServiceUnreachableError):
        monitor.take(both)
    assert runs(store) == 0
    assert monitor.take(both) == 2
    assert (runs(store), runs(store, "v2"), monitor.counts.reports) == (1, 1, 2)


def test_what_two_counted_is_put_together_to_what_one_would_have(clock):
    choose = random.Random(7)
    one, two, whole = VersionHistory(), VersionHistory(), VersionHistory()
    asked = [clock.now + n * 7 * MINUTE for n in range(3)]
    for step in range(200):
        if step == 20:
            for history in (one, whole):  # the other one has not heard of them
                for moment in asked:
                    history.begin(moment)
            two.begin(asked[1])
        clock.now += choose.randrange(MINUTE)
        made = report([(f"d{choose.randrange(50)}", 2, choose.choice([{}, {"E": 1}]))])
        for history in (choose.choice([one, two]), whole):
            history.add(made, clock.now)
    one.merge(two)
    loaded = VersionHistory.load(one.dump(is_whole=True))
    for history in (one, loaded):
        for moment in (0, asked[1], clock.now - 10 * MINUTE):
            health = [each.since(moment).health(TASK, "v1") for each in (history, whole)]
            assert health[0] == health[1]
        recent = [each.recent(clock.now).health(TASK, "v1") for each in (history, whole)]
        assert recent[0] == recent[1]
        assert history.seen_ms == whole.seen_ms
    # of what one asked for alone the other's is known by whole slots: never more than there was
    assert 0 < one.since(asked[2]).runs <= whole.since(asked[2]).runs
