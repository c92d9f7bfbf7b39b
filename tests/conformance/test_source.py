"""The file source keeps the contract of sources, in both formats and scopes."""

import gzip
from pathlib import Path

import msgspec

from walle_connectors import events, simulator
from walle_connectors.files import CONNECTOR
from walle_connectors.simulator.timeline import Timeline
from walle_stream.events import Event
from walle_stream.ports import Source
from walle_stream.testing import scripted
from walle_stream.testing.source_suite import SourceSuite
from walle_stream.wire.event_blocks import encode_file_head
from walle_stream.wire.event_builder import BlockBuilder

_ROWS = [
    # device, item, time_ms, stay_ms: held exits, ties, a duplicate, a late row, broken rows
    ("a", "x", "1000", "50"),
    ("b", "y", "1000", "5000"),
    ("a", "x", "1000", "70"),
    ("c", "z", "1010", "0"),
    ("d", "x", "1200", "3"),
    ("e", "broken", "soon", "1"),
    ("", "nobody", "1300", "1"),
    ("a", "y", "900", "1"),
    ("b", "z", "2000", "10"),
    ("f", "w", "6000", "90000"),
    ("a", "w", "6000", "1"),
    ("c", "y", "7000", "1"),
]

_TYPES = {"time_ms": "int", "stay_ms": "int"}
_MAPPING = {
    "device": "device",
    "time": "time_ms",
    "identity": ["device", "item", "time_ms"],
    "events": [
        {"kind": "exposure", "page": "'feed'", "contents": {"item": "item"}},
        {"kind": "page_enter", "when": "stay_ms > 0", "page": "'video'", "instance": "item"},
        {
            "kind": "page_exit",
            "when": "stay_ms > 0",
            "at": "time_ms + stay_ms",
            "page": "'video'",
            "instance": "item",
        },
    ],
}


def _source(path: Path, **keys: object) -> Source:
    return CONNECTOR.open(CONNECTOR.model.model_validate({"path": path, **_MAPPING, **keys}))


class TestCsvSource(SourceSuite):
    """CSV with quotes, gzip, one order for all devices."""

    def make_source(self, folder: Path) -> Source:
        lines = ["device,item,time_ms,stay_ms", *(",".join(row) for row in _ROWS)]
        lines[3:3] = ["not,enough", '"a","quoted\nitem",1000,1']
        path = folder / "rows.csv.gz"
        if not path.exists():
            path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
        return _source(path, format="csv", columns=_TYPES)

    def make_changed_source(self, folder: Path) -> Source | None:
        path = folder / "rows.csv.gz"
        path.write_bytes(gzip.compress(b"device,item,time_ms,stay_ms\na,b,1,2\n", mtime=0))
        return self.make_source(folder)


class TestJsonSource(SourceSuite):
    """JSON Lines with exploded lists, an order per device, lateness."""

    def make_source(self, folder: Path) -> Source:
        records = [
            f'{{"device":"{device}","rows":[{{"item":"{item}","time_ms":{time_ms},"stay_ms":{stay}}},'
            f'{{"item":"{item}2","time_ms":{time_ms},"stay_ms":1}}]}}'
            for device, item, time_ms, stay in _ROWS
            if time_ms.isdigit()
        ]
        records[2:2] = ["{", "[]", "", '{"device":"a","rows":[1,{"item":"q","time_ms":1001}]}']
        path = folder / "rows.jsonl"
        path.write_text("\n".join(records), encoding="utf-8")
        return _source(
            path, format="jsonl", explode="rows", order={"scope": "device", "lateness": "100ms"}
        )

    def make_changed_source(self, folder: Path) -> Source | None:
        self.make_source(folder)
        return _source(folder / "rows.jsonl", format="jsonl", explode="rows")


class TestSimulatorSource(SourceSuite):
    """A simulated shop with every kind of disorder."""

    def make_source(self, folder: Path) -> Source:
        del folder
        return simulator.CONNECTOR.open(_shop())

    def make_changed_source(self, folder: Path) -> Source | None:
        del folder
        return simulator.CONNECTOR.open(_shop(seed=2))


def _shop(**keys: object) -> simulator.SimulatorModel:
    disorder = {"late_events": 0.1, "duplicates": 0.1, "missing_exits": 0.2, "payload_bytes": 0}
    return simulator.SimulatorModel.model_validate(
        {"seed": 1, "devices": 7, "sessions": 2, **disorder, **keys}
    )


class TestEventsSource(SourceSuite):
    """A file of events with broken, empty and overlong lines, and none at its end."""

    def make_source(self, folder: Path) -> Source:
        path = folder / "events.jsonl"
        if not path.exists():
            lines = [
                line.data
                for window in range(2)
                for line in Timeline(_shop(payload_bytes=40)).lines(window)
            ]
            lines[5:5] = [
                b"{",
                b"",
                b"[]",
                lines[4].replace(b'"device-', b'"device-' + b"x" * 2_000),
            ]
            lines[9:9] = [b'{"device_id":""' + lines[8][lines[8].index(b',"id"') :], b"\xff"]
            lines[2:2] = [b"{" + b" " * 5_000 + lines[1][1:], lines[0].replace(b":17", b":-17")]
            path.write_bytes(gzip.compress(b"\n".join(lines)))
        return events.CONNECTOR.open(
            events.CONNECTOR.model.model_validate({"path": path, "maxRecordBytes": 3_000})
        )

    def make_changed_source(self, folder: Path) -> Source | None:
        path = folder / "events.jsonl"
        path.write_bytes(b"\n".join(line.data for line in Timeline(_shop(seed=9)).lines(0)))
        return self.make_source(folder)


class TestPackedEventsSource(SourceSuite):
    """Blocks of events, compressed: wrong ones, a damaged block, a cut one at the end."""

    def make_source(self, folder: Path) -> Source:
        path = folder / "events.wev"
        if not path.exists():
            path.write_bytes(gzip.compress(b"".join(_blocks())))
        return events.CONNECTOR.open(
            events.CONNECTOR.model.model_validate({"path": path, "maxRecordBytes": 3_000})
        )

    def make_changed_source(self, folder: Path) -> Source | None:
        head, *blocks = _blocks()
        (folder / "events.wev").write_bytes(b"".join([head, *blocks[1:]]))
        return self.make_source(folder)


def _blocks() -> list[bytes]:
    marker = b"twelve bytes"
    builder = BlockBuilder(marker, 2_000)
    blocks = [encode_file_head(marker)]
    for number, line in enumerate(Timeline(_shop()).lines(0)):
        event = msgspec.json.decode(line.data, type=Event)
        if number % 17 == 3:
            event.device_id = ""
        if number % 17 == 8:
            event.ingest_time_ms = -1
        blocks.append(builder.add(event, b"\xff" * (4_000 if number == 30 else number % 90)))
    blocks = [block for block in [*blocks, builder.flush()] if block]
    headers, head = bytearray(blocks[3]), bytearray(blocks[5])
    headers[50] ^= 1
    head[14] ^= 1
    blocks[3], blocks[5], blocks[-1] = bytes(headers), bytes(head), blocks[-1][:-1]
    return blocks


class TestScriptedSource(SourceSuite):
    """A script of every step, with pauses and aborts that are behind us, and ends within."""

    def make_source(self, folder: Path) -> Source:
        path, gates = folder / "steps.jsonl", scripted.Gates(folder / "gates")
        if not path.exists():
            scripted.write_script(path, _steps())
            (folder / "gates").mkdir()
            (folder / "gates" / "died.aborted").touch()
        gates.release("wait")
        return scripted.CONNECTOR.open(
            scripted.CONNECTOR.model(script=path, gates=folder / "gates")
        )

    def make_changed_source(self, folder: Path) -> Source | None:
        scripted.write_script(folder / "steps.jsonl", _steps()[1:])
        return self.make_source(folder)


def _steps() -> list[dict[str, object]]:
    events: list[dict[str, object]] = [
        {"device_id": device, "kind": "click", "page_id": "p", "event_time_ms": 1_000 + number}
        for number, device in enumerate("abcdeabcabadbcaeedcba")
    ]
    events[4:4] = [{"late": events[0]}, scripted.pause("wait"), {"duplicate": events[2]}]
    events[11:11] = [scripted.abort("died"), scripted.broken("{", "c"), scripted.broken("", "a")]
    return [*events, scripted.pause("wait")]
