import struct

import pytest

from walle_stream.errors import FrameError
from walle_stream.vm.frames import decode_results, encode_groups
from walle_stream.vm.guest.layout import DELETED, HEADER, MAGIC
from walle_stream.vm.results import DeviceGroup, RunInput, RunResult

RUN: RunInput = (1, 0, ())
GROUPS: list[DeviceGroup] = [("d", {}, [RUN])]


def frame(words: list[int], body: bytes, status: int = 1, number: int = 7) -> bytes:
    header = HEADER.pack(MAGIC, status, number, len(words), len(body))
    return header + struct.pack(f"<{len(words)}I", *words) + body


def test_a_run_with_emits_logs_and_state_is_cut_at_its_lengths() -> None:
    words = [1, 1, 2, 3, 1, 1, 4, 2, 1, 2, 1, DELETED]
    (group,) = decode_results(GROUPS, frame(words, b"{}encnotek[]x"))
    assert group.runs == [RunResult(ok=True, emits=[(b"{}", b"enc")], logs=[("warning", "note")])]
    assert group.state == {"k": b"[]", "x": None}


def test_a_failed_run_carries_class_and_message() -> None:
    (group,) = decode_results(GROUPS, frame([0, 0, 0, 8, 4, 0], b"KeyErrort: x"))
    assert group.runs == [RunResult(ok=False, error="KeyError", message="t: x")]


def test_bytes_behind_the_frame_are_ignored() -> None:
    assert decode_results(GROUPS, frame([1, 0, 0, 0], b"") + b"old bytes")[0].runs[0].ok


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ([], b""),
        ([1, 0, 0], b""),
        ([1, 0, 0, 0, 0], b""),
        ([1, 0, 0, 0], b"left over"),
        ([1, 1, 9, 0, 0, 0], b"short"),
        ([1, 0xFFFF_FFFF, 0, 0], b""),
        ([2, 0, 0, 0], b""),
        ([0, 1, 0, 0, 0, 0, 0, 0], b""),
        ([1, 0, 1, 3, 1, 0], b"x"),
        ([1, 0, 0, 1, 1, 0xFFFF_FFF0], b"k"),
    ],
)
def test_lengths_that_do_not_meet_are_refused(words: list[int], body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_results(GROUPS, frame(words, body))


def test_text_that_is_not_utf8_is_left_to_the_run_that_wrote_it() -> None:
    [group] = decode_results(GROUPS, frame([1, 0, 1, 0, 1, 0], b"\xff"))
    assert group.runs[0].logs == [("info", "\udcff")]


def test_a_header_that_promises_more_than_there_is_is_refused() -> None:
    for cut in (0, 5, HEADER.size, HEADER.size + 3):
        with pytest.raises(FrameError, match="no whole frame"):
            decode_results(GROUPS, frame([1, 0, 0, 0], b"")[:cut])
    huge = HEADER.pack(MAGIC, 1, 1, 1 << 60, 1 << 60)
    with pytest.raises(FrameError, match="no whole frame"):
        decode_results(GROUPS, huge)


def test_a_frame_without_the_magic_is_refused() -> None:
    with pytest.raises(FrameError, match="no whole frame"):
        decode_results(GROUPS, bytes(HEADER.size))


def test_values_that_are_not_plain_are_refused_with_the_device() -> None:
    with pytest.raises(FrameError, match=r"'d'.*plain values"):
        encode_groups([("d", {}, [(1, 2, (object(),))])])
