"""Frames become records, and what the cloud side reads of them."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_connectors.kafka.cloud.records import read_stretches
from walle_connectors.kafka.source.fetching import Records
from walle_connectors.kafka.tunnel_records import (
    frame_to_records,
    record_name,
    trace_parent,
)
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

INCARNATION = "ab" * 8


def frame(records, epoch=1, partition=2):
    return encode_uplink(
        UplinkEnvelope(partition, epoch, INCARNATION, 1, encode_body(records, "zstd"))
    )


def feature(number, device="d", value=b"{}"):
    return FeatureRecord(device, "t", "1", number, value, b"", 5)


def read(found, partition=2):
    keys, values, headers = zip(*found, strict=True)
    places = range(len(found))
    return read_stretches("t", partition, Records(places, places, keys, values, headers))


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
devices = texts.filter(lambda text: "\0" not in text)
values = st.dictionaries(texts, st.integers(-(2**31), 2**31) | texts | st.none(), max_size=3)
records = st.lists(
    st.builds(
        FeatureRecord,
        devices,
        texts,
        texts,
        st.integers(1, 2**63 - 1),
        values.map(msgspec.json.encode),
        st.binary(max_size=20),
        st.integers(-1, 2**62),
    ),
    min_size=1,
    max_size=8,
)


@given(records, st.sampled_from(["json", "msgpack"]))
def test_what_was_cut_is_read_again(given, value_format):
    [found], refused = read(frame_to_records(frame(given), value_format))
    assert (found.incarnation, found.partition, found.epoch) == (INCARNATION, 2, 1)
    assert (found.records, refused) == (given, [])


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
def test_calls_and_reports_are_records_of_their_own(value_format):
    # as no encoder of ours writes it: who answers, and who asked, know it by its bytes
    call = CloudCall("d", 1, "t", "1", "ask", b'{"q": "\\u00e4" }')
    body = b"".join(encode_calls([call], "none"))
    asked = encode_uplink(UplinkEnvelope(2, 1, INCARNATION, 9, body))
    made = [*frame_to_records(asked, value_format), *frame_to_records(reports(7))]
    found, refused = read(made)
    assert [(each.calls, len(each.reports)) for each in found] == [((call,), 0), ((), 1)]
    assert (found[1].reports[0].number, refused) == (7, [])


def reports(number):
    [body] = encode_reports([TaskReport("s/t", "1", 0, 1, [DeviceRuns("d", 1)])], "none")
    return encode_uplink(UplinkEnvelope(2, 1, INCARNATION, number, body))


@pytest.mark.parametrize("changed", [{"inc": b"zz"}, {"p": b"99999999999"}, {"v": b"3"}])
def test_reports_that_cannot_be_are_refused(changed):
    [record] = frame_to_records(reports(7))
    headers = {**dict(record.headers), **changed}
    key = headers["inc"] + b"/" + headers["p"]
    found, refused = read([record._replace(key=key, headers=list(headers.items()))])
    assert (found, len(refused)) == ([], 1)


NAMES = ["v", "inc", "p", "ep", "n", "task", "tv", "t", "ct", "enc", "svc", "kind", "traceparent"]
PARTS = st.sampled_from([b"", b"0", b"-1", b"4294967296", b"msgpack", b"reports", b"\xff", b"zz"])


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), PARTS | st.binary(max_size=20)), max_size=4),
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=20),
)
def test_whatever_is_in_the_topic_every_record_is_read_or_refused(changes, key, value):
    topic = frame_to_records(frame([feature(number) for number in range(1, 5)]))
    for place, changed in enumerate(changes):
        headers = {**dict(topic[place].headers), **changed}
        topic[place] = topic[place]._replace(headers=list(headers.items()))
    topic[-1] = topic[-1]._replace(key=key, value=value)
    found, refused = read(topic)
    read_of = sum(len(each.records) + len(each.reports) + len(each.calls) for each in found)
    assert read_of + len(refused) == len(topic)


def test_records_have_names_for_messages():
    [of_feature] = frame_to_records(frame([feature(3)]))
    [of_reports] = frame_to_records(reports(7))
    assert record_name(of_feature) == "device d, task t, number 3"
    assert record_name(of_reports) == "reports of partition 2, number 7"


@pytest.mark.parametrize("value_format", ["msgpack", "compact"])
@pytest.mark.parametrize("value", [b"{oops", b'{"x":%d}' % 2**70, b"[" * 12_000 + b"]" * 12_000])
def test_a_feature_that_the_format_cannot_have_travels_as_it_is(value, value_format):
    [(_, sent, headers)] = frame_to_records(frame([feature(1, value=value)]), value_format)
    assert (sent, dict(headers)["ct"]) == (value, b"json")


def test_a_trace_context_is_the_same_for_a_repeated_record():
    first, again = (
        dict(frame_to_records(frame([feature(1)], epoch), has_trace=True)[0].headers)
        for epoch in (1, 9)
    )
    assert first["traceparent"] == again["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", first["traceparent"].decode())
    assert trace_parent("a") != trace_parent("b")
    parent = f"00-{'4b' * 16}-{'f0' * 8}-00"
    assert re.fullmatch(
        rf"00-{'4b' * 16}-[0-9a-f]{{16}}-00", continued := trace_parent("a", parent)
    )
    assert continued != parent
    assert trace_parent("a", "no trace") == trace_parent("a")
    assert "traceparent" not in dict(frame_to_records(frame([feature(1)]))[0].headers)
