import fcntl
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from walle_stream import __version__
from walle_stream.errors import (
    FormatVersionError,
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
)
from walle_stream.store import datadir
from walle_stream.store.datadir import DataDir


def open_dir(path: Path, **changes: Any) -> DataDir:
    given: dict[str, Any] = {
        "partition_count": 4,
        "pipeline": "ipv",
        "source": {"path": "feed", "size": 3},
    }
    return DataDir.open(path, **(given | changes))


def change_meta(path: Path, **changes: Any) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | changes))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "data"


def test_new_directory_is_private_and_says_what_is_fixed(place: Path) -> None:
    with open_dir(place) as opened:
        meta = opened.meta
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "meta.json").stat().st_mode & 0o777 == 0o600
    assert (place / "LOCK").stat().st_mode & 0o777 == 0o600
    assert json.loads((place / "meta.json").read_text()) == {
        "format_version": 3,
        "partition_count": 4,
        "incarnation": meta.incarnation,
        "pipeline": "ipv",
        "source": {"path": "feed", "size": 3},
        "created_by": __version__,
        "has_cloud": True,
        "partitions": "partitions",
        "grown_from": [],
    }
    assert len(bytes.fromhex(meta.incarnation)) == 8


def test_second_opening_finds_what_the_first_made(place: Path) -> None:
    with open_dir(place) as first:
        pass
    with open_dir(place, source={"path": "other"}) as second:
        assert second.meta == first.meta


def test_two_directories_are_two_incarnations(tmp_path: Path) -> None:
    with open_dir(tmp_path / "a") as one, open_dir(tmp_path / "b") as other:
        assert one.meta.incarnation != other.meta.incarnation


def test_paths_lie_in_the_directory(place: Path) -> None:
    with open_dir(place) as opened:
        assert opened.partition_path(3) == place / "partitions" / "03"
        assert opened.partition_path(123) == place / "partitions" / "123"


def test_another_partition_count_is_refused_with_the_way_out(place: Path) -> None:
    open_dir(place).close()
    with pytest.raises(FormatVersionError, match=r"4 partitions.*has 8.*partitions=4"):
        open_dir(place, partition_count=8)


def test_another_pipeline_is_refused(place: Path) -> None:
    open_dir(place).close()
    with pytest.raises(StoreError, match="belongs to pipeline 'ipv', not 'otto'"):
        open_dir(place, pipeline="otto")


@pytest.mark.parametrize("version", [2, 4, "3", None])
def test_another_format_is_refused(place: Path, version: object) -> None:
    open_dir(place).close()
    change_meta(place, format_version=version)
    with pytest.raises(FormatVersionError, match="this version reads 3"):
        open_dir(place)
    with pytest.raises(FormatVersionError, match="this version reads 3"):
        DataDir.open_read_only(place)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format_version":2}', b"\xff"])
def test_damaged_meta_is_corruption(place: Path, content: bytes) -> None:
    open_dir(place).close()
    (place / "meta.json").write_bytes(content)
    with pytest.raises((StoreCorruptedError, FormatVersionError)):
        open_dir(place)


def test_refused_opening_leaves_no_lock(place: Path) -> None:
    open_dir(place).close()
    for _ in range(2):
        with pytest.raises(FormatVersionError):
            open_dir(place, partition_count=8)
    open_dir(place).close()


@pytest.mark.parametrize(
    "left",
    [
        {},
        {"LOCK": ""},
        {"LOCK": "123"},
        {"LOCK": "123", "meta.json.new": ""},
        {"LOCK": "123", "meta.json.new": '{"format_version":1,"partition_count":9}'},
    ],
)
def test_half_made_directory_is_made_again(place: Path, left: dict[str, str]) -> None:
    place.mkdir(parents=True)
    for name, content in left.items():
        (place / name).write_text(content)
    with pytest.raises(StoreMissingError):
        DataDir.open_read_only(place)
    with open_dir(place) as opened:
        assert opened.meta.partition_count == 4


def test_directory_of_somebody_else_is_refused_and_left_as_it_was(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"thesis\.tex"):
        open_dir(place)
    assert [file.name for file in place.iterdir()] == ["thesis.tex"]


def test_databases_without_meta_are_damage_not_a_new_directory(place: Path) -> None:
    open_dir(place).close()
    (place / "partitions" / "00").mkdir(parents=True)
    (place / "meta.json").unlink()
    with pytest.raises(StoreCorruptedError, match=r"meta\.json is lost"):
        open_dir(place)


def test_file_in_its_place_is_named(place: Path) -> None:
    place.parent.mkdir()
    place.write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        open_dir(place)
    with pytest.raises(StoreMissingError):
        DataDir.open_read_only(place)


def test_missing_directory_is_missing_to_a_reader_and_not_made(place: Path) -> None:
    with pytest.raises(StoreMissingError, match="no data directory"):
        DataDir.open_read_only(place)
    assert not place.exists()


def test_second_owner_is_told_the_first_ones_pid(place: Path) -> None:
    with open_dir(place), pytest.raises(StoreLockedError, match=f"process {os.getpid()}:"):
        open_dir(place)


def test_readers_need_no_lock(place: Path) -> None:
    with open_dir(place) as owner, DataDir.open_read_only(place) as reader:
        assert reader.meta == owner.meta
    open_dir(place).close()


def test_closing_twice_gives_the_lock_back_once(place: Path) -> None:
    first = open_dir(place)
    first.close()
    with open_dir(place):
        first.close()
        with pytest.raises(StoreLockedError):
            open_dir(place)
    assert (place / "LOCK").read_text() == ""


def test_waiting_ends_when_the_dying_owner_lets_go(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = open_dir(place)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            owner.close()

    monkeypatch.setattr(time, "sleep", sleep)
    open_dir(place, lock_timeout_s=60.0).close()
    assert len(waits) == 3


def test_waiting_ends_with_the_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = [0.0]

    def sleep(seconds: float) -> None:
        now_ms[0] += seconds * 1000.0

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(datadir, "monotonic_ms", lambda: now_ms[0])
    with open_dir(place), pytest.raises(StoreLockedError):
        open_dir(place, lock_timeout_s=5.0)
    assert 5_000.0 <= now_ms[0] < 5_100.0


def test_two_that_make_it_at_once_become_one_incarnation(place: Path) -> None:
    found: list[str] = []

    def run() -> None:
        with open_dir(place, lock_timeout_s=30.0) as opened:
            found.append(opened.meta.incarnation)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_full_disk_at_the_making_is_a_full_store(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreFullError, match="free space"):
        open_dir(place)
    monkeypatch.undo()
    open_dir(place).close()


def test_full_disk_does_not_stop_the_locking(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_dir(place).close()

    def pwrite(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with open_dir(place), pytest.raises(StoreLockedError, match="process unknown"):
        open_dir(place)


def test_lock_is_the_kernels(place: Path) -> None:
    with open_dir(place), (place / "LOCK").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_directory_without_databases_can_be_discarded(place: Path) -> None:
    opened = open_dir(place)
    opened.open_in_hand()
    opened.status_path.touch()
    opened.discard_if_bare()
    opened.close()
    assert not place.exists()
    place.mkdir()
    opened = open_dir(place)
    opened.discard_if_bare()
    opened.close()
    assert list(place.iterdir()) == []


def test_a_directory_with_a_database_is_never_discarded(place: Path) -> None:
    with open_dir(place) as opened:
        (place / "partitions").mkdir()
        opened.discard_if_bare()
        assert {each.name for each in place.iterdir()} == {"LOCK", "meta.json", "partitions"}


def test_who_waits_for_a_directory_that_is_discarded_makes_it_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_dir(place)

    def end(_: float) -> None:
        first.discard_if_bare()
        first.close()

    monkeypatch.setattr(datadir.time, "sleep", end)
    with open_dir(place, lock_timeout_s=10.0) as second:
        assert second.meta.incarnation != first.meta.incarnation
        assert second.owner == os.getpid()
        with pytest.raises(StoreLockedError):
            open_dir(place)


def test_a_shared_directory_has_several_owners_and_no_single_one_beside_them(place: Path) -> None:
    with open_dir(place, is_shared=True) as first:
        assert first.owner == os.getpid()
        with open_dir(place, is_shared=True) as second:
            assert second.meta == first.meta
            with pytest.raises(StoreLockedError):
                open_dir(place)
        assert first.owner == os.getpid()
    with open_dir(place), pytest.raises(StoreLockedError):
        open_dir(place, is_shared=True)


def test_a_directory_with_devices_placed_otherwise_is_refused(place: Path) -> None:
    other = place.parent / "other"
    for path, placing, another in ((place, 0, 7), (other, 7, 0), (other, 7, 8)):
        for _ in range(2):
            open_dir(path, placing=placing).close()
        with pytest.raises(StoreError, match="its devices in other partitions") as refused:
            open_dir(path, placing=another)
        assert "\n" not in str(refused.value)


def test_a_directory_without_cloud_side_says_so_and_lacks_nothing(place: Path) -> None:
    with open_dir(place, has_cloud=False) as opened:
        for number in range(4):
            folder = opened.partition_path(number)
            folder.mkdir(parents=True)
            (folder / "CURRENT").touch()
        opened.mark_complete()
        opened.check_parts()
    with pytest.raises(StoreError, match="another kind of tunnel"):
        open_dir(place)
    with open_dir(place, has_cloud=False) as opened:
        assert not opened.meta.has_cloud
