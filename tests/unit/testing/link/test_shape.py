"""When pieces are due, with a clock of the test's own."""

import pytest

from walle_stream.testing.link.shape import LinkShape, Pacer


def dues(shape, pieces, seed="1"):
    pacer = Pacer(seed)
    return [pacer.due_s(shape, now_s, size) for now_s, size in pieces]


def test_without_a_shape_everything_is_due_at_once():
    assert dues(LinkShape(), [(1.0, 10), (2.0, 10)]) == [1.0, 2.0]


def test_a_delay_moves_every_piece():
    assert dues(LinkShape(delay_ms=250), [(1.0, 10), (2.0, 10)]) == [1.25, 2.25]


def test_a_rate_makes_pieces_follow_each_other():
    shape = LinkShape(bytes_per_s=100)
    assert dues(shape, [(1.0, 50), (1.0, 50), (5.0, 100)]) == pytest.approx([1.5, 2.0, 6.0])
    both = LinkShape(bytes_per_s=100, delay_ms=1_000)
    assert dues(both, [(1.0, 50), (1.0, 50)]) == pytest.approx([2.5, 3.0])


def test_jitter_is_bounded_seeded_and_keeps_the_order():
    shape = LinkShape(delay_ms=100, jitter_ms=50)
    pieces = [(number / 1000, 10) for number in range(200)]
    first = dues(shape, pieces)
    assert first == dues(shape, pieces)
    assert first != dues(shape, pieces, seed="2")
    assert first == sorted(first)
    assert all(
        now_s + 0.1 <= due_s <= now_s + 0.25
        for (now_s, _), due_s in zip(pieces, first, strict=True)
    )


def test_what_is_lost_comes_after_a_time_out_and_holds_up_what_follows():
    pieces = [(number * 10.0, 100) for number in range(2_000)]
    waits = [
        due_s - now_s
        for (now_s, _), due_s in zip(pieces, dues(LinkShape(loss_ratio=0.05), pieces), strict=True)
    ]
    assert {round(each, 3) for each in waits} >= {0.0, 0.2, 0.6}
    assert 0.03 < sum(each > 0.0 for each in waits) / len(waits) < 0.07
    assert dues(LinkShape(loss_ratio=0.999), [(1.0, 1_000_000), (1.1, 1)], "a")[1] > 1.2


def test_a_large_piece_is_lost_more_often():
    pieces = [(number * 10.0, 14_480) for number in range(2_000)]
    late = [
        due_s > now_s
        for (now_s, _), due_s in zip(pieces, dues(LinkShape(loss_ratio=0.01), pieces), strict=True)
    ]
    assert 0.07 < sum(late) / len(late) < 0.12


def test_a_shape_that_changes_overtakes_nothing():
    pacer = Pacer("1")
    slow = pacer.due_s(LinkShape(delay_ms=1_000), 1.0, 10)
    assert pacer.due_s(LinkShape(), 1.1, 10) == slow
