import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.wire.ledger import Ledger, TaskBytes, shares_of
from walle_stream.wire.rows import Counters, PartitionHead, RowDecoder, encode_row

decode_head = RowDecoder(PartitionHead, "head").decode


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_shares_add_up_and_each_is_right_to_the_byte(total, weights):
    shares = shares_of(total, weights)
    if not sum(weights):
        assert shares == [0] * len(weights)
        return
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - total * weight / sum(weights)) < 1 + 1e-6
        assert share >= 0


def test_nothing_is_shared_among_nobody():
    assert shares_of(0, []) == []


def test_ledgers_add_up_by_task_and_stay_as_they_were():
    one = Ledger({"a": TaskBytes(features=1, sent_feature_bytes=5)}, 3, 30, 20)
    two = Ledger({"a": TaskBytes(features=2, calls=1, sent_call_bytes=7), "b": TaskBytes(1)}, 1)
    both = one.plus(two)
    assert both.tasks["a"] == TaskBytes(
        features=3, calls=1, sent_feature_bytes=5, sent_call_bytes=7
    )
    assert both.tasks["a"].sent_bytes == 12
    assert both.tasks["b"] == TaskBytes(features=1)
    assert (both.measured_rows, both.measured_raw_bytes, both.packed_raw_bytes) == (4, 30, 20)
    assert one.tasks == {"a": TaskBytes(features=1, sent_feature_bytes=5)}


def test_a_head_keeps_its_ledger():
    head = PartitionHead(ledger=Ledger({"a": TaskBytes(features=2)}, 1, 2, 3))
    assert decode_head(encode_row(head)) == head


@pytest.mark.parametrize("missing", [["ledger"], ["ledger", "is_ended"]])
def test_a_head_of_before_there_was_a_ledger_has_an_empty_one(missing):
    old = msgspec.to_builtins(PartitionHead(counters=Counters(features=9), watermark_ms=4))
    for name in missing:
        del old[name]
    head = decode_head(encode_row(old))
    assert (head.counters.features, head.watermark_ms) == (9, 4)
    assert head.ledger == Ledger()
