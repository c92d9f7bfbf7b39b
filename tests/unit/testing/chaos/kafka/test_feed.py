"""The lines of the input that are still to be written."""

import json

from walle_stream.testing.chaos.kafka.feed import _behind, read_lines
from walle_stream.types import partition_of


def test_lines_are_placed_as_a_run_without_a_broker_places_them(tmp_path):
    rows = [{"device_id": f"d{n % 3}", "ingest_time_ms": 5 + n, "more": [n]} for n in range(9)]
    file = tmp_path / "input.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = read_lines(file, 4)
    assert [json.loads(line.value) for line in lines] == rows
    assert [line.time_ms for line in lines] == list(range(5, 14))
    for line in lines:
        assert line.partition == partition_of(line.device.decode(), 4)
    # a campaign that was killed goes on behind what each partition has
    counts = [0] * 4
    for line in lines[:4]:
        counts[line.partition] += 1
    assert _behind(lines, counts) == lines[4:]
    assert _behind(lines, [9] * 4) == []
