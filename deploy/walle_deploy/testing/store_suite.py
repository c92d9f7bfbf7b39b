"""Conformance suite for release stores: the contract of every ``ReleaseStore`` adapter.

Subclass ``ReleaseStoreSuite`` in a test module of pytest, and implement ``make_store``. All
tests run against that store. Needs only pytest.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.receipts import Receipt
from walle_deploy.model.releases import ActiveRelease, VersionFiles
from walle_deploy.store.adapters import StoredRows, StoredTables
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.receipt_keys import StoredReceiptKeys, read_open_mode
from walle_deploy.store.rows import (
    LAST,
    AuditHead,
    CountedDevice,
    CountedWindow,
    Scope,
    SealedEntry,
    StoredRelease,
)
from walle_stream.errors import ConflictError

_TASK = "shop/ipv"
_WRITERS, _EACH = 4, 5
_MANY = 1_100
_LONG_AGO_MS = 1_700_000_000_000


class ReleaseStoreSuite(ABC):
    """Tests of a release store; subclass it once per adapter."""

    @abstractmethod
    def make_store(self, folder: Path) -> ReleaseStore:
        """Open a store. For one folder, the first call makes it, and later calls open the same one.

        Args:
            folder: A test's own folder.
        """

    def test_what_was_written_is_there_after_opening_again(self, tmp_path: Path) -> None:
        """All kinds of rows come back unchanged."""
        store = self.make_store(tmp_path)
        release = made(offer=offered(devices=frozenset({"a", "b"})))
        with store.writing() as writing:
            writing.put_version(_TASK, "v1", files("v1"))
            writing.put_version(_TASK, "v2", files("v2"))
            writing.put_release(release)
            writing.set_stable(_TASK, "v1")
            writing.append_audit(SealedEntry(1, "r", "{}", "h"), AuditHead())
            writing.put_snapshot("health", "x", b"\x00\xff")
        store.close()
        store = self.make_store(tmp_path)
        with store.reading() as reading:
            _expect(reading.release("r"), release)
            _expect(list(reading.releases()), [release])
            _expect(dict(reading.versions(_TASK)), {"v1": files("v1"), "v2": files("v2")})
            _expect(reading.audit_head(), AuditHead(1, "h"))
            _expect(list(reading.audit()), [SealedEntry(1, "r", "{}", "h")])
            _expect([reading.snapshot("health", each) for each in "xy"], [b"\x00\xff", None])
            table = reading.table()
            again = reading.table(table.files)
        _expect(all(again.files[name] is each for name, each in table.files.items()), wanted=True)
        _expect(again, table)
        _expect((table.releases, table.stable), ((release.offer,), {_TASK: "v1"}))
        _expect(set(table.files), {f"{_TASK}@v1", f"{_TASK}@v2"})
        store.close()

    def test_an_error_leaves_nothing_behind(self, tmp_path: Path) -> None:
        """State and audit entry are written together, or neither is."""
        store = self.make_store(tmp_path)

        def fail() -> None:
            with store.writing() as writing:
                writing.put_release(made())
                writing.append_audit(SealedEntry(1, "r", "{}", "h"), AuditHead())
                raise KeyError("stop here")

        _expect_error(KeyError, fail)
        with store.reading() as reading:
            _expect((list(reading.releases()), reading.audit_head()), ([], AuditHead()))
            _expect(reading.generation(), 0)
        store.close()

    def test_the_second_of_two_who_change_a_release_is_refused(self, tmp_path: Path) -> None:
        """Each revision is written once."""
        store, other = self.make_store(tmp_path), self.make_store(tmp_path)
        _put(store, made())
        _put(other, made(revision=2, state="theirs"))
        for stale in (made(revision=2, state="mine"), made(), made(revision=4)):
            _expect_error(ConflictError, partial(_put, store, stale))
        with store.reading() as reading:
            _expect(getattr(reading.release("r"), "state", ""), "theirs")
        store.close()
        other.close()

    def test_writers_at_once_lose_nothing(self, tmp_path: Path) -> None:
        """Threads with stores of their own add entries to one chain."""
        self.make_store(tmp_path).close()

        def write(name: str) -> None:
            store = self.make_store(tmp_path)
            for _ in range(_EACH):
                with store.writing() as writing:
                    head = writing.audit_head()
                    number = head.number + 1
                    writing.append_audit(SealedEntry(number, name, "{}", f"{name}{number}"), head)
            store.close()

        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store = self.make_store(tmp_path)
        with store.reading() as reading:
            numbers = [each.number for each in reading.audit()]
            _expect(len(list(reading.audit("a", after=0))), _EACH)
        _expect(numbers, list(range(1, _WRITERS * _EACH + 1)))
        store.close()

    def test_services_that_start_at_once_have_the_same_keys_of_receipts(
        self, tmp_path: Path
    ) -> None:
        """All services accept each other's tokens, even services that start later."""
        stores = [self.make_store(tmp_path) for _ in range(_WRITERS)]
        services = [StoredReceiptKeys(each) for each in stores]
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(StoredReceiptKeys.refresh, services))
        receipt = Receipt("d", _TASK, "v1", "r", "new", services[0].now_ms())
        tokens = [each.keys.issue(receipt) for each in services]
        for each in [*services, StoredReceiptKeys(stores[0])]:
            found = [each.keys.read(token, receipt.issued_ms) for token in tokens]
            _expect(found, [receipt] * _WRITERS)
        with stores[0].reading() as reading:
            _expect(read_open_mode(reading).until_ms, 0)
        StoredReceiptKeys(stores[0], is_open=True).refresh()
        with stores[1].reading() as reading:
            _expect(read_open_mode(reading).until_ms > reading.now_ms(), wanted=True)
        for store in stores:
            store.close()

    def test_an_audit_entry_goes_onto_the_end_alone(self, tmp_path: Path) -> None:
        """A head that is not the log's end is refused."""
        store = self.make_store(tmp_path)

        def append(number: int, head: AuditHead) -> None:
            with store.writing() as writing:
                writing.append_audit(SealedEntry(number, "", "{}", str(number)), head)

        append(1, AuditHead())
        _expect_error(ConflictError, lambda: append(1, AuditHead()))
        _expect_error(ConflictError, lambda: append(3, AuditHead(1, "1")))
        _expect_error(ConflictError, lambda: append(2, AuditHead(1, "x")))
        append(2, AuditHead(1, "1"))
        store.close()

    def test_a_version_never_changes(self, tmp_path: Path) -> None:
        """The same files again change nothing; other files are refused."""
        store = self.make_store(tmp_path)

        def publish(name: str) -> None:
            with store.writing() as writing:
                writing.put_version(_TASK, "v1", files(name))

        publish("v1")
        with store.reading() as reading:
            generation = reading.generation()
        publish("v1")
        _expect_error(ConflictError, lambda: publish("other"))
        with store.reading() as reading:
            _expect(reading.generation(), generation)
        store.close()

    def test_the_generation_grows_with_the_table_alone(self, tmp_path: Path) -> None:
        """Devices' checks read the table again only after a change."""
        store = self.make_store(tmp_path)
        tables = StoredTables(store)
        _put(store, made(offer=offered(percent=1.0)))
        first = tables.load()
        _put(store, made(revision=2, state="paused", offer=offered(percent=1.0)))
        _expect(tables.generation(), first.generation)
        _put(store, made(revision=3, offer=offered(percent=5.0)))
        _expect([each.percent for each in tables.load().releases], [5.0])
        _put(store, made(revision=4, is_open=False))
        _expect(tables.load().releases, ())
        _expect(tables.load().generation > first.generation, wanted=True)
        _put(store, made(revision=5, is_open=False, offer=offered(stage="withdrawn")))
        _expect(tables.load().releases, ())
        _expect(dict(tables.load().withdrawn), {_TASK: frozenset({"v2"})})
        _expect(set(tables.load().files), set())
        store.close()

    def test_other_parts_find_what_they_keep(self, tmp_path: Path) -> None:
        """New rows replace the old ones."""
        store = self.make_store(tmp_path)
        rows = StoredRows(store)
        rows.save("alarms/a", b"1")
        rows.save("alarms/a", b"\0")
        _expect((rows.read("alarms/a"), rows.read("alarms/")), (b"\0", None))
        store.close()

    def test_what_is_counted_is_found_again(self, tmp_path: Path) -> None:
        """Marks, scopes, devices and windows, each with many keys at once."""
        store = self.make_store(tmp_path)
        names = [Scope(_TASK, f"v{number}", "r", "new") for number in range(3)]
        devices = {
            (1, number - _MANY): CountedDevice(number, 0, 7, -1, -1, 5) for number in range(_MANY)
        }
        devices[1, 2**63 - 1] = CountedDevice(2**53, 1, 7, 8, 9, 10)
        window = CountedWindow(7, 5, 4, 3, _LONG_AGO_MS, b"\x00\xff")
        with store.counting() as counting:
            made = [counting.make_scope(each, 60, 0) for each in names]
            _expect(len({each.id for each in made}), 3)
            counting.put_marks({(1, "ab", 0): 5, (1, "ab", 1): 2**62, (2, "ab", 0): 1}, 1)
            counting.put_marks({(1, "ab", 0): 6}, 2)
            marks = {(device, "ab", part): part for device in (-7, -8, -9) for part in range(9)}
            counting.put_marks(marks, 3)
            counting.put_marks({(-7, "ab", 4): 5, (-7, "cd", 9): 1, (-8, "ab", 8): 9}, 4)
            counting.trim_marks({-7, -8}, 2)
            counting.put_counted(devices)
            counting.put_counted({(1, -1): CountedDevice(1, 1, 1, 1, 1, 1)})
            counting.put_window(1, window._replace(seen=1))
            counting.put_window(1, window)
            counting.put_window(1, window._replace(number=9))
            counting.move_devices({(1, 7): (-1, -2, 1), (1, 8): (1, 1, 1), (2, 7): (1, 1, 1)})
        store.close()
        store = self.make_store(tmp_path)
        moved = window._replace(seen=4, failed=2, crashed=4)
        with store.counting() as counting:
            _expect(
                dict(counting.marks([(1, "ab", 0), (2, "ab", 0), (2, "ab", 1)])),
                {(1, "ab", 0): 6, (2, "ab", 0): 1},
            )
            _expect(dict(counting.marks([])), {})
            kept = {(-7, "ab", 4): 5, (-7, "cd", 9): 1, (-8, "ab", 0): 0, (-8, "ab", 8): 9}
            kept |= {(-9, "ab", part): part for part in range(9)}
            _expect(dict(counting.marks([*marks, (-7, "cd", 9)])), kept)
            found = dict(counting.counted([*devices, (2, 0)]))
            _expect(found, devices | {(1, -1): CountedDevice(1, 1, 1, 1, 1, 1)})
            _expect((counting.window(1, 7), counting.window(1, 8)), (moved, None))
        with store.reading() as reading:
            _expect(
                dict(reading.scopes([names[0], names[2]._replace(group="control")])),
                {names[0]: made[0]},
            )
            _expect(list(reading.windows(1, 7)), [moved, window._replace(number=9)])
            _expect([each.data for each in reading.windows(1, 7, 7)], [b"", window.data])
            _expect([each.number for each in reading.windows(1, 8)], [9])
            _expect([each.number for each in reading.windows(1, 7, end=9)], [7])
        store.close()

    def test_devices_are_counted_with_the_version_that_they_reported_last(
        self, tmp_path: Path
    ) -> None:
        """Windows of the task's scope have the numbers of its versions' scopes."""
        store = self.make_store(tmp_path)
        with store.counting() as counting:
            last = counting.make_scope(Scope(_TASK, "", group=LAST), 0, 0)
            ids = [counting.make_scope(Scope(_TASK, f"v{n}"), 0, 0).id for n in range(3)]
            other = counting.make_scope(Scope("shop/x", "v1"), 0, 0)
            for number, seen in zip((*ids, other.id, 99), (7, 0, 3, 5, 2), strict=True):
                counting.put_window(last.id, CountedWindow(number, seen, 0, 0, 0, b""))
            _expect(dict(counting.device_counts(_TASK)), {"v0": 7, "v2": 3})
            _expect(dict(counting.device_counts("shop/x")), {})
        store.close()

    def test_numbers_of_windows_never_fall_and_never_jump(self, tmp_path: Path) -> None:
        """The clock may jump, and any process may count."""
        minutes = (100, 101, 101, 161, 100, 99, 9_999, 9_999, 9_998, 9_999)
        numbers = []
        for minute in minutes:
            with closing(self.make_store(tmp_path)) as store:
                with store.reading() as reading:
                    ahead = reading.window_at(minute * 60_000)
                with store.counting() as counting:
                    numbers.append(counting.begin_window(minute * 60_000 + 59_999))
                _expect(numbers[-1], ahead)
        _expect(numbers, [100, 101, 101, 161, 162, 163, 1_603, 1_603, 1_604, 1_605])

    def test_a_scope_is_due_and_goes_in_steps(self, tmp_path: Path) -> None:
        """Meanwhile, a new scope of the same name may begin."""
        store = self.make_store(tmp_path)
        name = Scope(_TASK, "v1")
        with store.counting() as counting:
            first = counting.make_scope(name, 60, 0)
            second = counting.make_scope(name._replace(version="v2"), 120, 60)
            _expect(counting.due_scope(60), None)
            _expect(counting.due_scope(180), first)
            first = first._replace(minutes_from=180, hours_from=120, step_ms=5, step_from=130)
            counting.put_edges(first)
            _expect(counting.scopes([name]), {name: first})
            _expect(counting.due_scope(200), second)
            devices = {(first.id, each): CountedDevice(0, 0, 1, -1, -1, -1) for each in range(5)}
            counting.put_counted(devices)
            for number in (1, 60, 61, 62):
                counting.put_window(first.id, CountedWindow(number, 1, 0, 0, 9, b"x"))
            counting.drop_windows(first.id, 60, 62)
            _expect([each.number for each in counting.windows(first.id, 0)], [1, 62])
            counting.drop_scope(first, 3)
            _expect(dict(counting.scopes([name])), {})
            counting.make_scope(name, 60, 0)
            left = counting.due_scope(0)
            _expect((getattr(left, "id", 0), len(counting.counted(devices))), (first.id, 2))
            counting.drop_scope(left or first, 3)
            _expect((counting.due_scope(0), len(counting.counted(devices))), (None, 0))
            _expect(list(counting.windows(first.id, 0)), [])
            _expect(set(counting.scopes([name])), {name})
        store.close()

    def test_who_counts_waits_for_others_who_do(self, tmp_path: Path) -> None:
        """Threads with stores of their own raise one number, each time by one."""
        self.make_store(tmp_path).close()
        key = (1, "ab", 0)

        def write() -> None:
            store = self.make_store(tmp_path)
            for _ in range(_EACH):
                with store.counting() as counting:
                    counting.put_marks({key: counting.marks([key]).get(key, 0) + 1}, 1)
            store.close()

        threads = [threading.Thread(target=write) for _ in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store = self.make_store(tmp_path)
        with store.counting() as counting:
            _expect(dict(counting.marks([key])), {key: _WRITERS * _EACH})
        store.close()

    def test_what_proves_nothing_is_counted_for_published_versions(self, tmp_path: Path) -> None:
        """Other versions get no row."""
        store = self.make_store(tmp_path)
        with store.writing() as writing:
            writing.put_version(_TASK, "v1", files("v1"))
        with store.counting() as counting:
            counting.add_unproven({(_TASK, "v1"): (2, 3), (_TASK, "v2"): (1, 1)})
            counting.add_unproven({(_TASK, "v1"): (1, 1)})
        with store.writing() as writing:
            writing.put_version(_TASK, "v1", files("v1"))
        with store.reading() as reading:
            _expect([reading.unproven(_TASK, name) for name in ("v1", "v2")], [(3, 4), (0, 0)])
        store.close()

    def test_it_knows_which_versions_were_published(self, tmp_path: Path) -> None:
        """Versions are found by task and version."""
        store = self.make_store(tmp_path)
        with store.writing() as writing:
            writing.put_version(_TASK, "v1", files("v1"))
        pairs = [(_TASK, "v1"), (_TASK, "v2"), ("shop/x", "v1"), ("", "")]
        with store.counting() as counting:
            _expect(set(counting.published(pairs)), {(_TASK, "v1")})
        store.close()

    def test_only_open_releases_of_a_task_are_found(self, tmp_path: Path) -> None:
        """The oldest comes first, whatever the names are."""
        store = self.make_store(tmp_path)
        _put(store, made(release_id="z"), made(release_id="a"))
        _put(store, made(release_id="m", is_open=False), made(release_id="o", task="shop/x"))
        with store.reading() as reading:
            names = [each.release_id for each in reading.releases(_TASK, only_open=True)]
            _expect((names, len(reading.releases())), (["z", "a"], 4))
            _expect(reading.release("none"), None)
        store.close()

    def test_a_lease_has_one_owner_until_it_ends(self, tmp_path: Path) -> None:
        """The owner can prolong the lease; it is free after its end."""
        store, other = self.make_store(tmp_path), self.make_store(tmp_path)

        def take(store: ReleaseStore, owner: str, lasting_ms: int) -> bool:
            with store.writing() as writing:
                return writing.take_lease("leader", owner, lasting_ms)

        found = [
            take(store, "a", 600_000),
            take(other, "b", 600_000),
            take(store, "a", 600_000),
            take(store, "a", 0),
            take(other, "b", 600_000),
            take(store, "a", 600_000),
        ]
        _expect(found, [True, False, True, True, True, False])
        store.close()
        other.close()

    def test_a_lease_of_a_clock_that_was_wrong_is_not_waited_for(self, tmp_path: Path) -> None:
        """The clock ran ahead, the owner was killed, and the clock was set back."""
        store = self.make_store(tmp_path)
        with store.writing() as writing:
            found = [
                writing.take_lease("leader", owner, lasting_ms)
                for owner, lasting_ms in (("dead", 3_600_000), ("a", 600_000), ("b", 600_000))
            ]
        _expect(found, [True, True, False])
        store.close()

    def test_anybody_sees_until_when_a_lease_is_held(self, tmp_path: Path) -> None:
        """The database's clock decides. A lease that was given back or never taken is not held."""
        store = self.make_store(tmp_path)

        def look(name: str) -> tuple[int, int]:
            with store.reading() as reading:
                return reading.lease_ends_ms(name), reading.now_ms()

        def take(owner: str, lasting_ms: int) -> None:
            with store.writing() as writing:
                writing.take_lease("leader", owner, lasting_ms)

        _expect(look("leader")[0], 0)
        take("a", 600_000)
        ends_ms, now_ms = look("leader")
        _expect(now_ms < ends_ms <= now_ms + 600_000, wanted=True)
        take("b", 900_000)
        _expect((look("leader")[0], look("other")[0]), (ends_ms, 0))
        take("a", 0)
        ends_ms, now_ms = look("leader")
        _expect(0 < ends_ms <= now_ms, wanted=True)
        store.close()

    def test_the_clock_is_the_databases_and_does_not_stand(self, tmp_path: Path) -> None:
        """The clock gives epoch milliseconds."""
        store = self.make_store(tmp_path)
        with store.reading() as reading:
            first = reading.now_ms()
        with store.writing() as writing:
            _expect(first <= writing.now_ms() and first > _LONG_AGO_MS, wanted=True)
        store.close()


def made(**changes: object) -> StoredRelease:
    """Return a release named ``r``, revision 1, open.

    Args:
        changes: Other fields.
    """
    fields: dict[str, object] = {
        "release_id": "r",
        "task": _TASK,
        "version": "v2",
        "revision": 1,
        "is_open": True,
        "created_ms": 7,
        "state": "{}",
    }
    return StoredRelease(**(fields | changes))  # type: ignore[arg-type]


def offered(**changes: object) -> ActiveRelease:
    """Return the offer of a release at a gray step.

    Args:
        changes: Other fields.
    """
    fields: dict[str, object] = {"stage": "gray", "policy": {"os": "android"}, "salt": "r"}
    return ActiveRelease("r", _TASK, "v2", **(fields | changes))  # type: ignore[arg-type]


def files(name: str) -> VersionFiles:
    """Return files of a version.

    Args:
        name: Name in their addresses.
    """
    pushed = PushedFile(f"{name}.walle", f"t/{name}.walle", "0" * 64, 5)
    return VersionFiles((pushed,), {"device-1": (pushed,)})


def _put(store: ReleaseStore, *releases: StoredRelease) -> None:
    with store.writing() as writing:
        for release in releases:
            writing.put_release(release)


def _expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"expected {wanted!r}, found {found!r}")


def _expect_error(kind: type[Exception], call: Callable[[], None]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")
