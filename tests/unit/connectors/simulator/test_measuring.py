import json

import pytest

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.measuring import BATCH_LINES, MemberReport, PayloadMeter
from walle_connectors.simulator.payload import CHANGING_SHARE
from walle_connectors.simulator.timeline import Timeline


def measured(*payloads, devices="d"):
    meter = PayloadMeter()
    for place, payload in enumerate(payloads):
        event = {"device_id": devices[place % len(devices)], "id": "x", "payload": payload}
        meter.add(json.dumps(event, separators=(",", ":")).encode())
    return meter.report()


def test_a_member_changes_when_its_json_differs_from_the_devices_event_before():
    report = measured({"a": 1, "b": "x"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"})
    assert report.events == 2
    assert report.bytes == 2 * len('{"a":1,"b":"x"}')
    assert report.members == {"a": MemberReport(12, 6), "b": MemberReport(16, 8)}
    assert report.changing_share == 14 / 30


def test_each_device_is_compared_with_itself():
    report = measured({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}, devices="de")
    assert (report.events, report.changing_bytes) == (2, 0)


@pytest.mark.parametrize("payloads", [[], [{"a": 1}], [{}, {}, {}]])
def test_nothing_to_compare_is_no_share(payloads):
    report = measured(*payloads)
    assert (report.events, report.changing_share, report.packed_share) == (0, 0.0, 0.0)


def test_all_batches_are_compressed_also_the_last():
    whole = measured(*[{"a": "x" * 100}] * (BATCH_LINES + 1)).packed_bytes
    assert measured(*[{"a": "x" * 100}] * (BATCH_LINES + 2)).packed_bytes > whole > 0


def test_most_of_the_shops_payload_changes_and_does_not_compress():
    meter = PayloadMeter()
    timeline = Timeline(SimulatorModel(devices=100, sessions=2))
    for window in range(timeline.windows):
        for line in timeline.lines(window):
            meter.add(line.data)
    report = meter.report()
    assert report.changing_share > CHANGING_SHARE
    # random bytes are half of a payload, and base64 of them takes three quarters at least
    trace = report.members["trace"]
    assert trace.changing_bytes / trace.bytes > 0.98
    assert report.packed_bytes > trace.bytes * 0.75
