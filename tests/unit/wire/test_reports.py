import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.errors import EnvelopeError
from walle_stream.wire import reports as wire
from walle_stream.wire.calls import decode_calls
from walle_stream.wire.frame import decode_body
from walle_stream.wire.payload import pack_payload
from walle_stream.wire.reports import DeviceRuns, TaskReport, decode_reports

REPORTS = [
    TaskReport(
        "shop/ipv",
        "v2",
        1_000,
        2_000,
        [DeviceRuns("a", 5, {"KeyError": 2, "RunStopped": 1}, 1), DeviceRuns("b", 4)],
        {300: 9},
        {100: 6},
    ),
    TaskReport("shop/otto", "v1", 0, 2_000, [DeviceRuns("é", 1, {"Quarantined": 1}, 0, 1)]),
    TaskReport("t", "v2", 0, 1, [DeviceRuns("c", 1, {}, 0, 0, "receipt")], {}, {}, "r", "new"),
]


@pytest.mark.parametrize("compression", ["zstd", "zlib", "none"])
def test_what_is_encoded_is_decoded(compression):
    [body] = wire.encode_reports(REPORTS, compression)
    assert wire.is_reports(body)
    assert decode_reports(body) == REPORTS


@settings(max_examples=60)
@given(st.sampled_from(["zstd", "zlib", "none"]), st.data())
def test_altered_bytes_are_refused_or_harmless(compression, data):
    [body] = map(bytearray, wire.encode_reports(REPORTS, compression))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for altered in (bytes(body), bytes(body[:cut])):
        try:
            decoded = decode_reports(altered)
        except EnvelopeError:
            continue
        assert decoded == REPORTS


def test_what_a_host_without_receipts_sends_is_read():
    [report] = decode_reports(packed(["t", "1", 0, 1, [["a", 2, {}, 0, 0]], {}, {}]))
    assert (report.release, report.group, report.devices[0].receipt) == ("", "", "")


def test_readers_of_the_other_kinds_do_not_take_reports_for_theirs():
    [body] = wire.encode_reports(REPORTS, "none")
    assert decode_calls(body) is None
    with pytest.raises(EnvelopeError, match="version 5"):
        decode_body(body)


def packed(*fields):
    return pack_payload(wire.REPORTS_VERSION, msgspec.msgpack.encode(list(fields)), "zstd")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (["t", "1", 0, 1, [["a", 1, {"E": 2}, 0, 0]], {}, {}], "2 failures"),
        (["t", "1", 0, 1, [["a", 2, {"E": 1}, 1, 1]], {}, {}], "1 strikes and 1 crashes"),
        (["t", "1", 0, 1, [["a", 2]], {5: 3}, {}], "times 3 of 2 runs"),
        (["t", "1", 5, 1, [["a", 2]], {}, {}], "from 5 to 1"),
        (["t", "1", 0, 1, [["a", -1]], {}, {}], "malformed"),
        (["t", "1", 0, 1, [["", 1]], {}, {}], "malformed"),
        (["t" * 300, "1", 0, 1, [], {}, {}], "malformed"),
        (["t", "1", 0, 1, [["a", 1, {str(n): 0 for n in range(65)}]], {}, {}], "malformed"),
        (["t", "1", 0, 1, [], {2_001: 1}, {}], "malformed"),
        (["t", "1", 0, 1, [], {"5": 1}, {}], "malformed"),
        (["t", "1", 0, 1, [], {}, {}, "r", "new", "more"], "malformed"),
        (["t", "1", 0, 1, [], {}, {}, "r" * 257], "malformed"),
        (["t", "1", 0, 1, [], {}, {}, "r", "n" * 257], "malformed"),
        (["t", "1", 0, 1, [["a", 1, {}, 0, 0, "x" * 4_097]], {}, {}], "malformed"),
        (["t", "1", 0, 1, [["a", 1, {}, 0, 0, 7]], {}, {}], "malformed"),
        (["t", "1", 0, 1], "malformed"),
        ("text", "malformed"),
    ],
)
def test_what_cannot_be_is_refused(report, said):
    with pytest.raises(EnvelopeError, match=said):
        decode_reports(packed(report))


def test_a_bomb_is_refused_before_it_is_inflated():
    body = pack_payload(wire.REPORTS_VERSION, b"\0" * (wire.REPORTS_MAX_BYTES + 1), "zstd")
    with pytest.raises(EnvelopeError, match="claims 16777217 bytes"):
        decode_reports(body)


def test_many_devices_go_in_several_frames(monkeypatch):
    monkeypatch.setattr(wire, "FRAME_DEVICES", 3)
    reports = [
        TaskReport("t", str(n), 0, 1, [DeviceRuns(str(each), 1) for each in range(2)])
        for n in range(3)
    ]
    bodies = list(wire.encode_reports(reports, "zstd"))
    assert [decode_reports(body) for body in bodies] == [[each] for each in reports]
