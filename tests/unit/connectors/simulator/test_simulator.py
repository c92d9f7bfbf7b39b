import gzip
import json
import os
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
import zstandard

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.payload import CHANGING_SHARE
from walle_connectors.simulator.timeline import GROUP_DEVICES, Timeline
from walle_stream.errors import SourceError, SpecFileError
from walle_stream.events import Event
from walle_stream.types import partition_of
from walle_stream.wire.event_blocks import (
    BLOCK_HEAD_BYTES,
    FILE_HEAD_BYTES,
    decode_file_head,
    decode_headers,
    try_decode_block_head,
)

SHOP = SimulatorModel(devices=300, sessions=2)
GOLDEN = (38_747, "2d728da4f3393598")


@pytest.fixture(scope="module")
def lines():
    timeline = Timeline(SHOP)
    return [line for window in range(timeline.windows) for line in timeline.lines(window)]


@pytest.fixture(scope="module")
def events(lines):
    return [json.loads(line.data) for line in lines]


def test_the_same_seed_gives_the_same_bytes_everywhere(lines):
    digest = blake2b(b"\n".join(line.data for line in lines), digest_size=8).hexdigest()
    assert (len(lines), digest) == GOLDEN
    other = Timeline(SimulatorModel(devices=300, sessions=2, seed=1)).lines(0)
    assert other[0].data != lines[0].data


def test_partitions_share_the_lines_out():
    timeline = Timeline(SimulatorModel(devices=300, sessions=1, payload_bytes=0))
    whole = timeline.lines(0)
    for count in (1, 4, 7):
        parts = timeline.lines_by_partition(0, count)
        assert sorted(line for part in parts for line in part) == sorted(whole)
        for number, part in enumerate(parts):
            assert part == [x for x in whole if partition_of(x.device_id, count) == number]


def test_lines_arrive_in_the_order_of_their_ingest_times(lines):
    half = len(Timeline(SHOP).lines(0))
    times = [line.ingest_time_ms for line in lines]
    assert times[:half] == sorted(times[:half])
    assert times[half:] == sorted(times[half:])
    assert max(times[:half]) < min(times[half:])


def test_an_item_page_view_has_some_19_events_and_21_kb(lines, events):
    views = sum(each["kind"] == "page_exit" and each["page_id"] == "item" for each in events)
    assert 18.0 < len(events) / views < 21.0
    assert 20_000 < sum(len(line.data) for line in lines) / views < 23_000


def test_all_kinds_and_all_disorders_occur(events):
    kinds = Counter(each["kind"] for each in events)
    assert set(kinds) == {"page_enter", "page_exit", "page_scroll", "exposure", "click"}
    entered = {(e["device_id"], e["page_instance"]) for e in events if e["kind"] == "page_enter"}
    left = {(e["device_id"], e["page_instance"]) for e in events if e["kind"] == "page_exit"}
    assert 0.01 < len(entered - left) / len(entered) < 0.03
    uids = Counter(each["uid"] for each in events)
    assert 0.007 < sum(count > 1 for count in uids.values()) / len(uids) < 0.013
    last: dict[str, int] = {}
    behind = []
    for each in events:
        device_id, time_ms = each["device_id"], each["event_time_ms"]
        behind.append(last.get(device_id, 0) - time_ms)
        last[device_id] = max(last.get(device_id, 0), time_ms)
    assert any(0 < each <= SHOP.lateness_ms for each in behind)
    assert any(each > SHOP.lateness_ms for each in behind)


def test_pages_nest_and_interleave(events):
    open_pages: dict[str, list[str]] = {}
    nested = interleaved = 0
    for each in sorted(events, key=lambda each: (each["device_id"], each["event_time_ms"])):
        stack = open_pages.setdefault(each["device_id"], [])
        instance = each["page_instance"]
        if each["kind"] == "page_enter":
            nested += bool(stack)
            stack.append(instance)
        elif each["kind"] == "page_exit" and instance in stack:
            interleaved += stack[-1] != instance
            stack.remove(instance)
    assert nested > 100
    assert interleaved > 10


def test_most_of_a_payload_changes_with_every_event(events):
    by_device: dict[str, list[bytes]] = {}
    for each in events:
        text = json.dumps(each["payload"], separators=(",", ":")).encode()
        by_device.setdefault(each["device_id"], []).append(text)
    raw = new = 0
    for texts in list(by_device.values())[:100]:
        # what a compressor that knows the device's other events cannot leave out
        known = zstandard.ZstdCompressionDict(b"".join(texts[:-1])[-100_000:])
        new += len(zstandard.ZstdCompressor(19, dict_data=known).compress(texts[-1]))
        raw += len(texts[-1])
    assert 850 < raw / 100 < 950
    # base64 has 6 bits in 8: as bytes on the wire a quarter less than what changes
    assert new / raw > CHANGING_SHARE * 0.75


def test_a_large_shop_visits_in_groups():
    timeline = Timeline(SimulatorModel(devices=1_200, sessions=2, payload_bytes=0))
    assert timeline.windows == 6
    groups = [{line.device_id for line in timeline.lines(window)} for window in range(6)]
    assert all(len(group) <= GROUP_DEVICES for group in groups)
    assert groups[:3] == groups[3:]
    assert len(set.union(*groups)) == 1_200


def test_no_payload_where_none_is_wanted():
    (first, *_) = Timeline(SimulatorModel(devices=1, payload_bytes=0)).lines(0)
    assert json.loads(first.data)["payload"] == {}


def write(tmp_path: Path, *arguments: str) -> Path:
    import argparse  # noqa: PLC0415

    from walle_connectors.simulator import command  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    out = tmp_path / arguments[0]
    options = parser.parse_args(["simulate", str(out), *arguments[1:]])
    assert options.run(options) == 0
    return out


def test_the_command_writes_what_the_connector_reads(tmp_path, capsys):
    out = write(tmp_path, "a.jsonl", "--set", "devices=3", "--set", "lateness=1s", "--json")
    model = SimulatorModel.model_validate({"devices": 3, "lateness": "1s"})
    timeline = Timeline(model)
    expected = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    assert out.read_bytes().splitlines() == expected
    said = json.loads(capsys.readouterr().out)
    assert said == {"file": str(out), "events": len(expected), "bytes": out.stat().st_size}
    first = write(tmp_path, "a.jsonl.gz", "--set", "devices=3").read_bytes()
    assert write(tmp_path, "b.jsonl.gz", "--set", "devices=3").read_bytes() == first
    assert not list(tmp_path.glob("*.part"))


def test_the_command_writes_packed_events(tmp_path, capsys):
    out = write(tmp_path, "a.wev", "--set", "devices=3", "--format", "packed", "--json")
    said = json.loads(capsys.readouterr().out)
    data = out.read_bytes()
    timeline = Timeline(SimulatorModel(devices=3))
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    assert (said["events"], said["bytes"]) == (len(lines), len(data))
    marker, at = decode_file_head(data[:FILE_HEAD_BYTES]), FILE_HEAD_BYTES
    events, payloads = [], []
    while at < len(data):
        head = try_decode_block_head(data[at : at + BLOCK_HEAD_BYTES], marker)
        assert head is not None
        at += BLOCK_HEAD_BYTES
        headers = decode_headers(data[at : at + head.headers_bytes], head)
        at += head.headers_bytes
        events += headers.events
        for size in headers.sizes:
            payloads.append(data[at : at + size])
            at += size
    assert events == [msgspec.json.decode(line, type=Event) for line in lines]
    assert [json.loads(each) for each in payloads] == [json.loads(x)["payload"] for x in lines]
    again = write(tmp_path, "b.wev.gz", "--set", "devices=3", "--format", "packed")
    assert gzip.decompress(again.read_bytes()) == data
    keys = ("--set", "devices=3", "--set", "sessions=4")
    longer = write(tmp_path, "c.wev", *keys, "--format", "packed").read_bytes()
    assert longer.startswith(data)
    assert len(longer) > len(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devices", "expected KEY=VALUE"),
        ("devices=0", "devices: Input should be greater"),
        ("visitors=1", "visitors: Extra inputs"),
        ("devices=[", "no YAML value"),
    ],
)
def test_wrong_keys_are_one_line_and_leave_no_file(tmp_path, text, words):
    with pytest.raises(SpecFileError, match=words):
        write(tmp_path, "a.jsonl", "--set", text)
    assert not list(tmp_path.iterdir())


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ""):
        with pytest.raises(SourceError, match="is not a file"):
            write(tmp_path, name, "--set", "devices=1")
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]
    assert (tmp_path / "pipe").is_fifo()
