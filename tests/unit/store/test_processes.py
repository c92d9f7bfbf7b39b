"""What only several processes show: locks, kills, readers beside a writer, full disks."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from walle_stream.errors import StoreFullError, StoreLockedError
from walle_stream.store.datadir import DataDir
from walle_stream.store.keys import EPOCH_KEY
from walle_stream.store.partition import PartitionStore

# commits batch after batch; each is rows of one number, so that half a batch would show
WRITER = """
import signal, sys
from pathlib import Path
from walle_stream.errors import StoreFullError
from walle_stream.store.buffering import BufferingTable, FlushPolicy
from walle_stream.store.partition import PartitionStore
from walle_stream.store import rocks

path, count, buffer_bytes, rows, size = sys.argv[1], *map(int, sys.argv[2:])
rocks.WRITE_BUFFER_BYTES = buffer_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with PartitionStore.open(Path(path)) as store:
    table = BufferingTable(FlushPolicy(max_rows=rows // 2))
    number = int(store.get(b"n") or b"0")
    print("open", number, flush=True)
    try:
        for number in range(number + 1, number + 1 + count):
            value = b"%d" % number
            with store.begin() as transaction:
                table.bind(transaction)
                transaction.put(b"n", value)
                transaction.put(b"log%08d" % number, bytes(size))
                for row in range(rows):
                    table.put_rows({b"k%d" % row: value}, 0)
            print("done", number, flush=True)
    except StoreFullError:
        print("full", number, flush=True)
        try:
            store.begin()
        except StoreFullError as error:
            print("refused", "open it again" in str(error), flush=True)
        print("reads", int(store.get(b"n") or b"0"), flush=True)
print("closed", flush=True)
"""


def start(
    path: Path, count: int, buffer_bytes: int = 1 << 25, rows: int = 20, size: int = 100,
    **environ: str,
) -> "subprocess.Popen[str]":  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, path, *map(str, (count, buffer_bytes, rows, size))],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def stop(process: "subprocess.Popen[str]") -> str:
    process.kill()
    said, _ = process.communicate()
    return said


def last(said: str, word: str) -> int:
    return max(
        (int(number) for number in re.findall(rf"^{word} (\d+)$", said, re.MULTILINE)), default=0
    )


def committed(store: PartitionStore, rows: int = 20) -> int:
    number = int(store.get(b"n") or b"0")
    values = {store.get(b"k%d" % row) for row in range(rows)}
    assert values == {b"%d" % number if number else None}
    logged = [int(key[3:]) for key, _ in store.scan(b"log")]
    assert logged == list(range(1, number + 1))
    return number


# Locks


def test_another_process_is_refused_while_one_writes(tmp_path: Path) -> None:
    process = start(tmp_path / "db", 1_000_000)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open 0\n"
        with pytest.raises(StoreLockedError, match="another process"):
            PartitionStore.open(tmp_path / "db")
    finally:
        stop(process)
    PartitionStore.open(tmp_path / "db").close()


def test_data_directory_names_the_pid_of_its_owner_until_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; "
        "from walle_stream.store.datadir import DataDir; "
        "kept = DataDir.open(Path(sys.argv[1]), partition_count=1, pipeline='p', source={}); "
        "print('open', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "data"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreLockedError, match=f"process {process.pid}:"):
            DataDir.open(tmp_path / "data", partition_count=1, pipeline="p", source={})
    finally:
        stop(process)
    DataDir.open(tmp_path / "data", partition_count=1, pipeline="p", source={}).close()


# Kills


def test_kill_at_random_moments_loses_nothing_acknowledged_and_halves_no_batch(
    tmp_path: Path,
) -> None:
    choose = random.Random(7)
    path, reached = tmp_path / "db", 0
    for _ in range(6):
        # small buffers, so that kills meet flushes and compactions too
        process = start(path, 1_000_000, buffer_bytes=64 << 10)
        assert process.stdout is not None
        assert process.stdout.readline() == f"open {reached}\n"
        time.sleep(choose.uniform(0.0, 0.15))
        done = max(last(stop(process), "done"), reached)
        with PartitionStore.open(path) as store:
            reached = committed(store)
        assert done <= reached <= done + 1


@pytest.mark.parametrize(
    ("point", "expected"), [("flush.before:3", 1), ("commit.before:3", 2), ("commit.after:3", 3)]
)
def test_kill_at_a_crash_point_leaves_all_of_a_batch_or_nothing(
    tmp_path: Path, point: str, expected: int
) -> None:
    process = start(tmp_path / "db", 10, WALLE_CRASH=point)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    with PartitionStore.open(tmp_path / "db") as store:
        assert committed(store) == expected


def test_kill_while_it_is_made_leaves_a_directory_that_opens(tmp_path: Path) -> None:
    choose = random.Random(11)
    code = (
        "import itertools, sys; from pathlib import Path; "
        "from walle_stream.store.datadir import DataDir; "
        "from walle_stream.store.partition import PartitionStore\n"
        "print('go', flush=True)\n"
        "for number in itertools.count():\n"
        "  path = Path(sys.argv[1]) / str(number)\n"
        "  with DataDir.open(path, partition_count=1, pipeline='p', source={}) as opened:\n"
        "    PartitionStore.open(opened.partition_path(0)).close()\n"
    )
    for life in range(6):
        root = tmp_path / str(life)
        process = subprocess.Popen(
            [sys.executable, "-c", code, root], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(choose.uniform(0.0, 0.05))
        stop(process)
        for path in sorted(root.glob("*")):
            with DataDir.open(path, partition_count=1, pipeline="p", source={}) as opened:
                PartitionStore.open(opened.partition_path(0)).close()


# Readers


def test_reader_beside_a_busy_writer_sees_whole_batches_and_no_gap(tmp_path: Path) -> None:
    # buffers this small flush every few commits: the writer deletes logs under the reader
    process = start(tmp_path / "db", 60_000, buffer_bytes=256 << 10, size=300)
    assert process.stdout is not None
    process.stdout.readline()
    reached, openings = 0, 0
    try:
        while process.poll() is None and openings < 150:
            with PartitionStore.open(tmp_path / "db", read_only=True) as store:
                number = committed(store)
            assert number >= reached
            reached, openings = number, openings + 1
    finally:
        stop(process)
    assert openings > 5
    assert reached > 0


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk
    subprocess.run(["umount", disk], check=True)


def check_full(said: str) -> int:
    done = last(said, "done")
    assert last(said, "full") == done + 1
    assert "refused True\n" in said
    assert last(said, "reads") == done
    assert said.endswith("closed\n")
    return done


def test_file_size_limit_refuses_the_commit_as_a_whole_and_then_every_other(
    tmp_path: Path,
) -> None:
    command = ["bash", "-c", 'ulimit -f 2048; exec "$@"', "-", sys.executable, "-c", WRITER]
    run = subprocess.run(
        [*command, tmp_path / "db", "100000", str(1 << 25), "20", "9999"],
        capture_output=True,
        text=True,
        check=True,
    )
    done = check_full(run.stdout)
    assert done > 10
    with PartitionStore.open(tmp_path / "db") as store:
        assert committed(store) == done
        with store.begin() as transaction:
            transaction.put(EPOCH_KEY, b"goes on")
        assert store.get(EPOCH_KEY) == b"goes on"


def test_full_disk_is_named_at_commit_and_opening_and_goes_on_after_freeing(
    small_disk: Path,
) -> None:
    (small_disk / "filler").write_bytes(bytes(6 << 20))
    said, _ = start(small_disk / "db", 100_000, size=9_999).communicate()
    done = check_full(said)
    assert done > 10
    with pytest.raises(StoreFullError, match="free space"):
        PartitionStore.open(small_disk / "db")
    (small_disk / "filler").unlink()
    with PartitionStore.open(small_disk / "db") as store:
        assert committed(store) == done
        with store.begin() as transaction:
            transaction.put(EPOCH_KEY, b"goes on")
        assert store.get(EPOCH_KEY) == b"goes on"
