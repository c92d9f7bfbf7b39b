import json

import pytest

from walle_deploy.simulation.events import check_events, read_events
from walle_deploy.simulation.kinds import DeviceKindsSpec
from walle_deploy.simulation.simulate import simulate
from walle_stream.errors import PackageError, SourceError, SourceNotFoundError

EVENT = {
    "device_id": "a",
    "id": "click",
    "kind": "click",
    "page_id": "p",
    "page_instance": "",
    "event_time_ms": 1,
    "ingest_time_ms": 1,
}
LINE = json.dumps(EVENT).encode()


def test_empty_lines_are_left_out():
    assert check_events(b"\n" + LINE + b"\r\n\n" + LINE) == LINE + b"\n" + LINE


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"\xff",
        json.dumps({**EVENT, "kind": "tap"}).encode(),
        json.dumps({**EVENT, "device_id": ""}).encode(),
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path, line):
    file = tmp_path / "events.jsonl"
    file.write_bytes(LINE + b"\n" + line)
    with pytest.raises(SourceError, match=r"events\.jsonl:2: "):
        read_events(file)


def test_files_and_kinds_without_events_are_refused(tmp_path):
    with pytest.raises(SourceNotFoundError, match="no file"):
        read_events(tmp_path / "none.jsonl")
    with pytest.raises(SourceError, match="cannot be read"):
        read_events(tmp_path)
    kinds = DeviceKindsSpec.model_validate({"kinds": [{"name": "k"}]})
    with pytest.raises(PackageError):
        simulate(b"no package", kinds, LINE)
