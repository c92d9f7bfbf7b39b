import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_connectors.kafka.source.offsets import (
    Beginning,
    Bounds,
    TopicPosition,
    decode_positions,
)
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.reading.offsets import encode_position

NUMBERS = st.integers(0, 2**62)


def beginning(on_missing="fail", topic_id="id", *, stops=False):
    return Beginning(
        topic="raw", topic_id=topic_id, cluster="c", stops_at_end=stops, on_missing=on_missing
    )


def position(place, **fields):
    return TopicPosition(next=place, topic="raw", **{"topic_id": "id", "cluster": "c", **fields})


@given(NUMBERS, st.integers(-1, 2**62), st.booleans(), st.text(), st.text(), st.text())
def test_an_offset_comes_back_as_it_was(place, end, is_end, topic, topic_id, cluster):
    given_ = TopicPosition(
        next=place, topic=topic, topic_id=topic_id, cluster=cluster, end=end, is_end=is_end
    )
    assert decode_positions({7: encode_position(given_)}, topic, cluster) == {7: given_}


@given(st.binary(max_size=200))
def test_foreign_bytes_are_an_error_of_the_source(offset):
    with pytest.raises(SourceError, match="the offset of partition 2"):
        decode_positions({2: offset}, "raw", "c")


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"v": 1}, SourceError, "layout 1, this version reads 2"),
        ({"next": -1}, SourceError, "not one of a Kafka topic"),
        ({"more": 1}, SourceError, "not one of a Kafka topic"),
        ({"topic": "other"}, SourceChangedError, "of topic 'other'"),
        ({"cluster": "d"}, SourceChangedError, "in cluster 'd'"),
    ],
)
def test_offsets_of_something_else_are_refused(fields, error, words):
    offset = json.dumps({"v": 2, "next": 3, "topic": "raw", "cluster": "c", **fields}).encode()
    with pytest.raises(error, match=words):
        decode_positions({0: offset}, "raw", "c")


def test_a_cluster_that_is_not_known_is_no_other_one():
    offset = encode_position(position(3, cluster=""))
    assert decode_positions({0: offset}, "raw", "c")[0].next == 3
    assert decode_positions({0: encode_position(position(3))}, "raw", "")[0].next == 3


@given(NUMBERS, st.integers(0, 1_000), st.integers(0, 1_000), st.booleans())
def test_a_partition_that_was_never_read_begins_where_it_should(begin, start, more, stops):
    bounds = Bounds(begin, begin + start + more, begin + start)
    found = beginning(stops=stops).position(0, None, bounds)
    assert found.next == bounds.start
    assert found.end == (bounds.end if stops else -1)
    assert not found.is_end


@given(NUMBERS, st.integers(0, 1_000), st.integers(0, 1_000))
def test_what_is_still_there_is_read_on_behind_the_token(begin, done, more):
    stored = position(begin + done)
    bounds = Bounds(begin, begin + done + more, begin)
    for policy in ("fail", "earliest", "latest"):
        assert beginning(policy).position(0, stored, bounds) == stored


@pytest.mark.parametrize(
    ("stored", "bounds", "words"),
    [
        (position(4), Bounds(7, 9, 7), "3 records are lost: reading stopped at offset 4"),
        (position(20), Bounds(7, 9, 7), "11 records that were read are gone"),
        (position(8, topic_id="old"), Bounds(7, 9, 7), "the topic was recreated"),
    ],
)
def test_what_is_gone_follows_the_policy(stored, bounds, words):
    with pytest.raises(SourceError, match=rf"raw\[5\]: .*{words}.*onMissingOffset=earliest"):
        beginning().position(5, stored, bounds)
    assert beginning("earliest").position(5, stored, bounds).next == bounds.begin
    assert beginning("latest").position(5, stored, bounds).next == bounds.end


def test_records_that_a_broker_lost_follow_the_policy_whatever_came_since():
    stored, bounds = position(8), Bounds(2, 20, 2)
    with pytest.raises(SourceError, match=r"a broker lost records that were read.*offset 8"):
        beginning().position(5, stored, bounds, is_cut=True)
    assert beginning("earliest").position(5, stored, bounds, is_cut=True).next == 2
    assert beginning("latest").position(5, stored, bounds, is_cut=True).next == 20


@pytest.mark.parametrize("stored", [position(8, topic_id="old", end=90), position(60, end=90)])
def test_an_end_of_what_is_gone_is_waited_for_no_longer(stored):
    found = beginning("earliest", stops=True).position(0, stored, Bounds(0, 50, 0))
    assert (found.next, found.end, found.is_end) == (0, 50, False)


def test_an_end_stays_where_it_was_first():
    bounds = Bounds(0, 50, 0)
    begun = position(4, end=10)
    assert beginning(stops=True).position(0, begun, bounds) == begun
    ended = position(10, end=10, is_end=True)
    assert beginning(stops=True).position(0, ended, bounds) == ended
    assert beginning().position(0, ended, bounds) == position(10)
    assert beginning(stops=True).position(0, position(4), bounds).end == 50
