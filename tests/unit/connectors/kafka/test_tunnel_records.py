"""Frames become records and frames again."""

import re
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_connectors.kafka import tunnel_records
from walle_connectors.kafka.tunnel_records import (
    frame_to_records,
    record_name,
    records_to_frames,
    trace_parent,
)
from walle_stream.errors import EnvelopeError
from walle_stream.wire.calls import CloudCall, decode_calls, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, decode_uplink, encode_uplink
from walle_stream.wire.frame import FeatureRecord, decode_body, encode_body
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

INCARNATION = "ab" * 8


def frame(records, epoch=1, partition=2):
    return encode_uplink(
        UplinkEnvelope(partition, epoch, INCARNATION, 1, encode_body(records, "zstd"))
    )


def feature(number, device="d", value=b"{}"):
    return FeatureRecord(device, "t", "1", number, value, b"", 5)


def topic_of(frames, value_format="json"):
    found = [each for data in frames for each in frame_to_records(data, value_format)]
    return [
        SimpleNamespace(
            key=key, value=value, headers=headers, offset=offset, topic="t", partition=2
        )
        for offset, (key, value, headers) in enumerate(found)
    ]


def decoded(frames):
    return [
        (each.epoch, decode_body(each.body)) for each in (decode_uplink(data) for _, data in frames)
    ]


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
devices = texts.filter(lambda text: "\0" not in text)
values = st.dictionaries(texts, st.integers(-(2**31), 2**31) | texts | st.none(), max_size=3)
records = st.lists(
    st.builds(
        FeatureRecord,
        devices,
        texts,
        texts,
        st.integers(0, 2**63 - 1),
        values.map(msgspec.json.encode),
        st.binary(max_size=20),
        st.integers(-1, 2**62),
    ),
    min_size=1,
    max_size=8,
)


@given(records, st.sampled_from(["json", "msgpack"]))
def test_what_was_cut_is_put_together(given, value_format):
    [(position, data)] = records_to_frames(topic_of([frame(given)], value_format))
    assert position == len(given)
    assert decoded([(position, data)]) == [(1, given)]


def test_records_of_another_epoch_begin_another_frame():
    topic = topic_of([frame([feature(1)]), frame([feature(2)]), frame([feature(3)], epoch=2)])
    frames = list(records_to_frames(topic))
    assert [position for position, _ in frames] == [2, 3]
    assert decoded(frames) == [(1, [feature(1), feature(2)]), (2, [feature(3)])]


def test_frames_of_the_cloud_side_are_bounded(monkeypatch):
    monkeypatch.setattr(tunnel_records, "FRAME_MAX_BYTES", 100)
    topic = topic_of([frame([feature(n, value=b'"%s"' % (b"x" * 60)) for n in range(5)])])
    assert [position for position, _ in records_to_frames(topic)] == [2, 4, 5]


def test_calls_have_frames_of_their_own():
    call = CloudCall("d", 1, "t", "1", "ask", b'{"q":1}')
    body = b"".join(encode_calls([call], "none"))
    asked = encode_uplink(UplinkEnvelope(2, 1, INCARNATION, 9, body))
    frames = list(records_to_frames(topic_of([frame([feature(1)]), asked, frame([feature(2)])])))
    bodies = [decode_uplink(data).body for _, data in frames]
    assert [decode_calls(each) for each in bodies] == [None, [call], None]


def reports(number):
    [body] = encode_reports([TaskReport("s/t", "1", 0, 1, [DeviceRuns("d", 1)])], "none")
    return encode_uplink(UplinkEnvelope(2, 1, INCARNATION, number, body))


def test_a_frame_of_reports_is_one_record_and_the_same_frame_again():
    topic = topic_of([frame([feature(1)]), reports(7), reports(9), frame([feature(2)])])
    assert len(topic) == 4
    frames = list(records_to_frames(topic))
    assert [position for position, _ in frames] == [1, 2, 3, 4]
    assert [data for _, data in frames[1:3]] == [reports(7), reports(9)]
    assert decoded([frames[0], frames[3]]) == [(1, [feature(1)]), (1, [feature(2)])]


@pytest.mark.parametrize("changed", [{"inc": b"zz"}, {"p": b"99999999999"}, {"v": b"3"}])
def test_reports_that_cannot_be_are_a_frame_that_is_refused(changed):
    topic = topic_of([reports(7), reports(8)])
    headers = {**dict(topic[0].headers), **changed}
    topic[0].headers = list(headers.items())
    topic[0].key = headers["inc"] + b"/" + headers["p"]
    assert list(records_to_frames(topic)) == [(1, b""), (2, reports(8))]


@pytest.mark.parametrize(
    "changed",
    [
        {"inc": b"zz"},
        {"inc": b"ab" * 9},
        {"p": b"-1"},
        {"p": b"4294967296"},
        {"ep": b"-1"},
        {"n": b"-1"},
        {"n": b"9223372036854775808"},
    ],
)
def test_features_that_no_frame_can_have_are_one_that_is_refused(changed):
    topic = topic_of([frame([feature(1), feature(2), feature(3)])])
    topic[0].headers = list({**dict(topic[0].headers), **changed}.items())
    (position, refused), rest = records_to_frames(topic)
    assert (position, refused) == (1, b"")
    assert decoded([rest]) == [(1, [feature(2), feature(3)])]


NAMES = ["v", "inc", "p", "ep", "n", "task", "tv", "t", "ct", "enc", "svc", "kind", "traceparent"]
PARTS = st.sampled_from([b"", b"0", b"-1", b"4294967296", b"msgpack", b"reports", b"\xff", b"zz"])


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), PARTS | st.binary(max_size=20)), max_size=4),
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=20),
)
def test_whatever_is_in_the_topic_every_record_is_of_a_frame(changes, key, value):
    topic = topic_of([frame([feature(number) for number in range(1, 5)])])
    for record, changed in zip(topic, changes, strict=False):
        record.headers = list({**dict(record.headers), **changed}.items())
    topic[-1].key, topic[-1].value = key, value
    positions = []
    for position, data in records_to_frames(topic):
        positions.append(position)
        if data:
            decode_uplink(data)
    assert positions == sorted(set(positions))
    assert positions[-1] == len(topic)


def test_records_have_names_for_messages():
    [of_feature] = frame_to_records(frame([feature(3)]))
    [of_reports] = frame_to_records(reports(7))
    assert record_name(of_feature) == "device d, task t, number 3"
    assert record_name(of_reports) == "reports of partition 2, number 7"


def test_what_cannot_be_read_is_a_frame_that_is_refused_and_the_rest_goes_on(caplog):
    topic = topic_of([frame([feature(1), feature(2), feature(3)])])
    topic[1].headers = []
    frames = list(records_to_frames(topic))
    assert [(position, bool(data)) for position, data in frames] == [
        (1, True),
        (2, False),
        (3, True),
    ]
    assert "record t/2@1 is refused" in caplog.text
    with pytest.raises(EnvelopeError):
        decode_uplink(frames[1][1])


def test_a_feature_that_is_no_json_travels_as_it_is():
    [(_, value, headers)] = frame_to_records(frame([feature(1, value=b"{oops")]), "msgpack")
    assert (value, dict(headers)["ct"]) == (b"{oops", b"json")


def test_a_trace_context_is_the_same_for_a_repeated_record():
    first, again = (
        dict(frame_to_records(frame([feature(1)], epoch), has_trace=True)[0].headers)
        for epoch in (1, 9)
    )
    assert first["traceparent"] == again["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", first["traceparent"].decode())
    assert trace_parent("a") != trace_parent("b")
    assert "traceparent" not in dict(frame_to_records(frame([feature(1)]))[0].headers)
