"""The ledger of bytes: the bars, counted again from the frames on their way, and through ``kill -9``."""

import json
import shutil
import struct

import msgspec
import pytest
import zstandard

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.actors.partition import PartitionHost
from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.ledger import read_ledger
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.queries.query import canonical_state
from walle_stream.app.resources import shipped_configs
from walle_stream.cloud.host_tables import HostTables

SHOP = shipped_configs() / "shop.yaml"
PARTITIONS = 4
SMALL = ["source.devices=80", "source.sessions=2", f"runtime.partitions={PARTITIONS}"]
SMALL = [f"spec.{each}" for each in SMALL]

ENVELOPE = struct.Struct("<BBIQ8sQ")
BODY = struct.Struct("<BBII")


def run(file, data_dir, overrides=(), *, is_measured=True, limit=None):
    assembly = Assembly.load(file, list(overrides))
    return LocalRun(assembly, RunOptions(data_dir, 1, limit, is_measured=is_measured)).run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run whose log forgets nothing, its report, and how many rows each commit took."""
    data_dir = tmp_path_factory.mktemp("whole") / "d"
    cuts, frames = [], []
    complete, send = PartitionHost._complete, HostTables.send

    def watched(self, turn):
        cuts.append((self.number, turn.raw.rows))
        return complete(self, turn)

    def noted(self, sent):
        frames.extend(data for _, _, data in sent)
        send(self, sent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostTables, "send", noted)
        patch.setattr(PartitionHost, "_complete", watched)
        report = run(SHOP, data_dir, SMALL)
    return data_dir, report, cuts, frames


def records_of(frame):
    """Read a frame by its documented layout, without our code."""
    _, _, size, _ = BODY.unpack_from(frame, ENVELOPE.size)
    data = zstandard.ZstdDecompressor().decompress(frame[ENVELOPE.size + BODY.size :])
    assert len(data) == size
    return [
        ((*head, time_ms), feature, encoding)
        for *head, feature, encoding, time_ms, _ in msgspec.msgpack.decode(data)
    ]


def framed_bytes(records):
    """What records would cost in a frame of their own, by the documented layout."""
    data = msgspec.msgpack.encode(
        [[*head, feature, encoding, time_ms, ""] for (*head, time_ms), feature, encoding in records]
    )
    return ENVELOPE.size + BODY.size + len(zstandard.ZstdCompressor(level=1).compress(data))


def test_the_figures_are_those_of_the_frames(whole):
    _, report, _, frames = whole
    (task,) = report.ledger.to_builtins()["tasks"]
    by_frame = [records_of(frame) for frame in frames]
    records = [record for each in by_frame for record in each]
    left = sum(map(len, frames))
    assert (len(frames), left) == (report.counters.uplink_frames, report.counters.uplink_bytes)
    assert task["task"] == "shop-ipv"
    assert task["sent_bytes"] == left == task["measured_sent_bytes"]
    assert task["features"] == len(records) > 300
    assert task["feature_bytes"] == sum(len(feature) for _, feature, _ in records)
    assert task["encoding_bytes"] == sum(len(encoding) for *_, encoding in records)
    features = encodings = 0
    for frame, own in zip(frames, by_frame, strict=True):
        made = [sum(len(each[place]) for each in own) for place in (1, 2)]
        features += len(frame) * made[0] // sum(made)
        encodings += len(frame) - len(frame) * made[0] // sum(made)
    assert (task["sent_feature_bytes"], task["sent_encoding_bytes"]) == (features, encodings)
    assert task["feature_alone_bytes"] == sum(
        framed_bytes([(head, feature, b"") for head, feature, _ in own]) for own in by_frame
    )
    assert task["encoding_alone_bytes"] == sum(
        framed_bytes([(head, b"", encoding) for head, _, encoding in own]) for own in by_frame
    )


def test_the_raw_rows_are_those_of_the_shop_in_the_same_commits(whole):
    _, report, cuts, _ = whole
    timeline = Timeline(SimulatorModel(devices=80, sessions=2))
    rows = [[] for _ in range(PARTITIONS)]
    for window in range(timeline.windows):
        for own, lines in zip(rows, timeline.lines_by_partition(window, PARTITIONS), strict=True):
            own.extend(line.data + b"\n" for line in lines)
    plain = sum(len(line) for own in rows for line in own)
    packed = 0
    for partition, count in cuts:
        batch, rows[partition] = rows[partition][:count], rows[partition][count:]
        if batch:
            packed += ENVELOPE.size + BODY.size
            packed += len(zstandard.ZstdCompressor(level=1).compress(b"".join(batch)))
    assert rows == [[]] * PARTITIONS
    ledger = report.ledger
    assert ledger.measured_rows == ledger.source_rows == report.counters.source_rows
    assert ledger.raw_bytes == ledger.measured_raw_bytes == plain
    assert ledger.packed_raw_bytes == packed


def test_the_bars_of_the_shop(whole):
    _, report, _, _ = whole
    (task,) = report.ledger.tasks
    assert task.feature_alone.raw >= 0.90
    assert task.feature_alone.packed_raw >= 0.85
    assert task.encoding_alone.raw >= 0.99
    assert task.encoding_alone.packed_raw >= 0.94
    # both together: below the features' own bars
    assert task.sent.raw >= 0.90
    assert task.sent.packed_raw >= 0.85


def test_the_data_directory_keeps_it_and_two_commands_show_it(whole, walle, tmp_path):
    data_dir, report, _, _ = whole
    data_dir = shutil.copytree(data_dir, tmp_path / "d")
    assert read_ledger(data_dir) == report.ledger
    kept = json.loads(walle("ledger", data_dir, "--json").stdout)
    assert kept == report.ledger.to_builtins()
    table = walle("ledger", data_dir).stdout
    assert "shop-ipv" in table
    assert f"{report.counters.features:,}" in table
    again = walle(
        *("run", "shop", "--data-dir", data_dir, "--json"),
        *(a for o in SMALL for a in ("--set", o)),
    )
    assert json.loads(again.stdout.splitlines()[-1])["ledger"] == kept


def test_without_being_asked_nothing_is_compressed_twice(tmp_path):
    report = run(SHOP, tmp_path / "d", SMALL, is_measured=False, limit=2_000)
    ledger = report.ledger
    (task,) = ledger.tasks
    assert task.bytes.sent_bytes == ledger.uplink_bytes > 0
    assert (ledger.measured_rows, ledger.packed_raw_bytes) == (0, 0)
    assert task.sent.raw is not None
    assert (task.sent.packed_raw, task.feature_alone.raw, task.encoding_alone.raw) == (None,) * 3
    measured = run(SHOP, tmp_path / "d", SMALL).ledger
    assert measured.measured_rows == measured.source_rows - 2_000
    assert measured.unassigned_bytes == 0
    (task,) = measured.tasks
    assert task.bytes.measured_sent_bytes < task.bytes.sent_bytes


def test_a_feed_of_small_rows_is_reported_as_it_is(sample, walle, tmp_path):
    arguments = ["--set", f"spec.source.path={sample}", "--data-dir", tmp_path / "d", "--ledger"]
    said = walle("run", "ipv", *arguments, "--limit", 3_000).stdout
    ledger = read_ledger(tmp_path / "d")
    assert ledger.measured_rows == 3_000
    assert ledger.measured_raw_bytes == ledger.raw_bytes
    (task,) = ledger.tasks
    # a row of this feed is smaller than what is made of it
    assert task.sent.packed_raw < 0
    assert "above" in said


ASKS = """
def run(ctx, page):
    ctx.call_cloud("double", {"n": 1})
    ctx.emit({"page": page.page_id}, encoding=b"e" * 16)

def on_reply(ctx, reply):
    ctx.emit({"reply": reply.value})
"""


def test_two_tasks_and_their_calls_add_up_to_what_left(tmp_path):
    folder = tmp_path / "p"
    shutil.copytree(shipped_configs() / "template", folder)
    (folder / "cloud.py").write_text("def double(call):\n    return 2 * call.question['n']\n")
    (folder / "asks.py").write_text(ASKS)
    file = folder / "pipeline.yaml"
    first, second = file.read_text().split("\n---\n")
    asks = second.replace("name: visit", "name: asks").replace("visit.py", "asks.py")
    services = (
        "\n  services: {double: {file: cloud.py, function: double}}\n  tasks:\n    - task: asks"
    )
    file.write_text("\n---\n".join([first.replace("\n  tasks:", services), second, asks]))
    report = run(file, tmp_path / "d")
    ledger = report.ledger
    by_task = {each.task: each.bytes for each in ledger.tasks}
    assert sorted(by_task) == ["asks", "visit"]
    assert sum(each.sent_bytes for each in by_task.values()) == ledger.uplink_bytes
    assert ledger.unassigned_bytes == 0
    asked = by_task["asks"]
    assert asked.calls == report.counters.calls > 0
    # one per run and one per reply, whose turn may have no rows of its own
    assert asked.features == 2 * asked.calls
    assert asked.sent_call_bytes > 0 < asked.sent_encoding_bytes
    assert all(each.measured_sent_bytes == each.sent_bytes for each in by_task.values())


KILLED = ["commit.before:5", "commit.after:9", "send.before:7", "send.after:3", "cloud.after:2"]


def test_kills_change_nothing_in_it(walle, tmp_path):
    overrides = [*SMALL, "spec.runtime.batchEvents=50"]
    expected = run(SHOP, tmp_path / "whole", overrides).ledger
    command = ["run", "shop", "--ledger", "--json", "--data-dir", tmp_path / "d"]
    command += [each for override in overrides for each in ("--set", override)]
    for point in [*KILLED, ""]:
        done = walle(*command, environ={"WALLE_CRASH": point}, check=False)
        assert done.returncode == (-9 if point else 0), done.stderr
    found = read_ledger(tmp_path / "d")
    assert found.unassigned_bytes == 0
    assert found.measured_rows == expected.source_rows
    assert found.measured_raw_bytes == expected.raw_bytes
    (task,), (wanted,) = found.tasks, expected.tasks
    for name in ("features", "feature_bytes", "encoding_bytes"):
        assert getattr(task.bytes, name) == getattr(wanted.bytes, name)
    assert task.bytes.measured_sent_bytes == task.bytes.sent_bytes == found.uplink_bytes
    whole, killed = (list(canonical_state(tmp_path / name)) for name in ("whole", "d"))
    assert killed == whole
    assert msgspec.json.decode(whole[0])["made"]["shop-ipv"]["features"] > 0
