"""The bytes that outlive a process, and what is made of them."""

import signal
import subprocess
import sys

import pytest

from walle_stream.errors import StoreCorruptedError
from walle_stream.store.datadir import DataDir
from walle_stream.store.in_hand import InHand

CHILD = """
import os, sys
from pathlib import Path
from walle_stream.store.in_hand import InHand
marks = InHand.open(Path(sys.argv[1]), 4)
marks.mark(1)
marks.mark(2)
marks.put_down(2)
os.kill(os.getpid(), 9)
"""

STARTER = """
import sys
from pathlib import Path
from walle_stream.store.in_hand import InHand
marks = InHand.open(Path(sys.argv[1]), 4, ())
with marks.in_line(3):
    is_doubtful = marks.is_doubtful(3)
    marks.mark(3)
    print(is_doubtful, flush=True)
    input()
    marks.put_down(3)
"""


@pytest.fixture
def starter(tmp_path):
    """A process that has the number 3."""
    command = [sys.executable, "-c", STARTER, tmp_path / "f"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "False\n"
        try:
            yield process
        finally:
            process.kill()


def doubtful(marks, count=4):
    return [number for number in range(count) if marks.is_doubtful(number)]


def test_a_new_file_says_nothing(tmp_path):
    assert doubtful(InHand.open(tmp_path / "f", 4)) == []
    assert (tmp_path / "f").read_bytes() == bytes(4)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_what_was_in_hand_survives_a_kill(tmp_path):
    done = subprocess.run([sys.executable, "-c", CHILD, tmp_path / "f"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert doubtful(InHand.open(tmp_path / "f", 4)) == [1]


def test_doubt_stays_until_it_is_settled(tmp_path):
    InHand.open(tmp_path / "f", 4).mark(3)
    for _ in range(2):
        marks = InHand.open(tmp_path / "f", 4)
        marks.mark(3)
        marks.put_down(3)
        marks.put_down_all()
        assert doubtful(marks) == [3]
    marks.settle(3)
    assert doubtful(InHand.open(tmp_path / "f", 4)) == []


def test_put_down_is_no_longer_in_hand(tmp_path):
    marks = InHand.open(tmp_path / "f", 4)
    marks.mark(0)
    marks.mark(1)
    marks.put_down(0)
    assert doubtful(InHand.open(tmp_path / "f", 4)) == [1]
    marks = InHand.open(tmp_path / "g", 4)
    marks.mark(0)
    marks.mark(1)
    marks.put_down_all()
    assert doubtful(InHand.open(tmp_path / "g", 4)) == []


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\x01", b"\0\x07\0\0 and more"])
def test_a_file_of_another_length_is_read_as_far_as_it_goes(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    marks = InHand.open(tmp_path / "f", 4)
    assert doubtful(marks) == [1] * (len(content) > 1)
    marks.mark(0)


def open_dir(path):
    return DataDir.open(path, partition_count=4, pipeline="p", source={})


def test_a_data_directory_has_one_and_lists_quarantined_pairs_once(tmp_path):
    with open_dir(tmp_path / "d") as opened:
        opened.open_in_hand().mark(1)
        for device_id in ("a", "b", "a"):
            opened.add_quarantined("t", device_id)
    with open_dir(tmp_path / "d") as opened:
        assert doubtful(opened.open_in_hand(), 5) == [1]
        assert opened.quarantined() == [("t", "a"), ("t", "b")]
    (tmp_path / "d" / "meta.json").unlink()
    with pytest.raises(StoreCorruptedError, match=r"meta\.json is lost"):
        open_dir(tmp_path / "d")


def test_processes_share_the_file_each_for_its_own(tmp_path):
    InHand.open(tmp_path / "f", 4, ())  # made at its full size by who owns all
    first = InHand.open(tmp_path / "f", 4, [0, 2])
    first.mark(2)
    second = InHand.open(tmp_path / "f", 4, [1, 3])
    second.mark(3)
    assert doubtful(second) == []
    again = InHand.open(tmp_path / "f", 4, [1, 3])
    assert doubtful(again) == [3]
    first.put_down(2)
    again.put_down_all()
    assert (tmp_path / "f").read_bytes() == bytes([0, 0, 0, 2])


def test_a_partition_that_comes_from_another_process_is_looked_at_when_it_comes(tmp_path):
    first = InHand.open(tmp_path / "f", 4, [2])
    first.mark(2)
    second = InHand.open(tmp_path / "f", 4, [1])
    second.adopt(2)
    second.adopt(3)
    assert doubtful(second) == [2]
    second.mark(3)
    second.put_down_all()
    assert (tmp_path / "f").read_bytes() == bytes([0, 0, 2, 0])


def test_starts_that_share_a_number_wait_for_one_another(starter, tmp_path, monkeypatch):
    marks, waits = InHand.open(tmp_path / "f", 4, ()), []

    def wait(seconds):
        waits.append(seconds)
        starter.communicate("\n")

    monkeypatch.setattr("time.sleep", wait)
    with marks.in_line(3):
        assert doubtful(marks) == []
    assert (len(waits), starter.returncode) == (1, 0)


def test_a_start_that_was_killed_is_in_doubt_at_the_next(starter, tmp_path):
    starter.kill()
    starter.wait()
    marks = InHand.open(tmp_path / "f", 4, ())
    for _ in range(2):
        with marks.in_line(3):
            assert doubtful(marks) == [3]


def test_a_start_that_does_not_end_is_doubt_in_the_end(starter, tmp_path, monkeypatch):
    monkeypatch.setattr("walle_stream.store.in_hand.LOCKS_TIMEOUT_S", 0.0)
    marks = InHand.open(tmp_path / "f", 4, ())
    with marks.in_line(3):
        assert doubtful(marks) == [3]
    assert starter.poll() is None
