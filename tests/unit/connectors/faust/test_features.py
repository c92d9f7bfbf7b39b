"""What becomes of a record of the topic, whether or not anybody takes reports."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from walle_connectors.faust.features import _Intake
from walle_connectors.faust.merging import Merger
from walle_connectors.faust.reports import ReportOutlet
from walle_stream.wire.report_record import ReportRecord, encode_report_record
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

[BODY] = encode_reports([TaskReport("s/t", "1", 0, 1, [DeviceRuns("d", 1)])], "none")


class Letters:
    """Of refused records."""

    def __init__(self):
        self.offsets = []

    async def put(self, message, _error):
        self.offsets.append(message.offset)


def message(offset, **changed):
    key, value, headers = encode_report_record(ReportRecord("ab" * 8, 2, 1, offset, BODY))
    given = {"key": key, "value": value, "headers": tuple(headers), **changed}
    return SimpleNamespace(topic="t", partition=2, offset=offset, **given)


def test_reports_that_nobody_takes_are_counted_and_nothing_waits_for_them():
    async def run():
        merger, letters = Merger({}, {}), Letters()
        intake = _Intake(merger, letters, None)
        assert await intake.take(message(1)) == []
        assert await intake.take(message(2, value=b"x")) == []  # refused, and no dead letter
        assert await intake.take(message(3, headers=())) == []  # no report at all
        assert (merger.counts.reports, merger.counts.refused, letters.offsets) == (1, 2, [3])

    asyncio.run(run())


def test_the_offset_of_a_report_waits_for_the_service():
    async def run():
        intake = _Intake(Merger({}, {}), Letters(), ReportOutlet("http://h:1", 60.0))
        [first] = await intake.take(message(1))
        assert not first.done()
        assert await intake.take(message(2, value=b"x")) == []

    asyncio.run(run())
