"""Marks of replayed letters: what was added is read, also behind a death."""

import pytest

from walle_stream.errors import StoreCorruptedError, StoreLockedError
from walle_stream.store.replayed import REPLAYED_NAME, ReplayedLetters, read_replayed


def test_marks_are_read_again(tmp_path):
    assert read_replayed(tmp_path) == set()
    with ReplayedLetters.open(tmp_path) as marks:
        assert marks.read() == set()
        marks.add(["letter/ab/0/1", "letter/ab/0/2"])
        marks.add(["letter/ab/1/1"])
    with ReplayedLetters.open(tmp_path) as marks:
        assert marks.read() == read_replayed(tmp_path)
        assert len(marks.read()) == 3


def test_half_a_line_is_no_mark_and_goes(tmp_path):
    (tmp_path / REPLAYED_NAME).write_bytes(b'"letter/ab/0/1"\n"letter/ab')
    with ReplayedLetters.open(tmp_path) as marks:
        assert marks.read() == {"letter/ab/0/1"}
        marks.add(["letter/ab/0/2"])
        assert marks.read() == {"letter/ab/0/1", "letter/ab/0/2"}


def test_only_one_replays_at_a_time(tmp_path):
    with (
        ReplayedLetters.open(tmp_path),
        pytest.raises(StoreLockedError, match="another process is replaying"),
        ReplayedLetters.open(tmp_path),
    ):
        pass


def test_a_damaged_file_is_told(tmp_path):
    (tmp_path / REPLAYED_NAME).write_bytes(b"{\n")
    with pytest.raises(StoreCorruptedError, match=r"replayed\.jsonl is damaged"):
        read_replayed(tmp_path)
