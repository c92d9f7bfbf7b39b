"""A pipeline over a topic gives what it gives over a file of the same events."""

import argparse
import re

import pytest

from walle_connectors import kafka
from walle_connectors.kafka import replay
from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.status import read_status
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import SourceError
from walle_stream.store.objects import FolderObjects
from walle_stream.store.snapshots import PartitionSnapshots
from walle_stream.testing.kit import run_pipeline

pytestmark = pytest.mark.integration


def walle(*arguments):
    parser = argparse.ArgumentParser()
    replay.add(parser.add_subparsers())
    options = parser.parse_args(["replay", *map(str, arguments)])
    assert options.run(options) == 0


def definition(folder, source):
    """Write the shop's pipeline with another source."""
    text = (shipped_configs() / "shop.yaml").read_text()
    text = re.sub(r"  source:\n(    .*\n)+", f"  source: {source}\n", text)
    (folder / "shop.py").write_bytes((shipped_configs() / "shop.py").read_bytes())
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return path


def features(path, data_dir, *overrides, limit=None):
    found = {}
    for row in run_pipeline(path, data_dir, overrides, limit):
        found.setdefault(row["device_id"], []).append((row["sequence_number"], row["feature"]))
    return found


@pytest.fixture(scope="module")
def shop(address, topics, tmp_path_factory):
    """A topic, and the features of a file of what it has."""
    folder = tmp_path_factory.mktemp("shop")
    name = topics.make(4)
    timeline = Timeline(SimulatorModel(devices=30, sessions=2, payload_bytes=50))
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    (folder / "shop.jsonl").write_bytes(b"\n".join(lines))
    walle(folder / "shop.jsonl", "--topic", name, "--brokers", address)
    walle(folder / "back.jsonl", "--record", "--topic", name, "--brokers", address)
    path = definition(folder, "{connector: events, path: back.jsonl}")
    return name, features(path, folder / "d")


def source_of(address, name, **keys):
    given = {"brokers": f"'{address}'", "topic": name, "stopAtEnd": "true", **keys}
    rest = ", ".join(f"{key}: {value}" for key, value in given.items())
    return f"{{connector: '{kafka.__name__}:CONNECTOR', {rest}}}"


def test_a_topic_gives_what_its_recording_gives(address, shop, tmp_path):
    name, expected = shop
    path = definition(tmp_path, source_of(address, name))
    found = features(path, tmp_path / "d", "spec.runtime.partitions=4")
    assert len(expected) > 20
    assert found == expected


@pytest.mark.parametrize("hosts", [1, 2])
def test_hosts_of_a_group_give_it_too(address, shop, tmp_path, hosts, group_driver):
    name, expected = shop
    path = definition(
        tmp_path,
        source_of(address, name, group=f"{name}-{hosts}-{group_driver}", driver=group_driver),
    )
    overrides = ["spec.runtime.partitions=4", f"spec.runtime.hosts={hosts}"]
    assert features(path, tmp_path / "d", *overrides) == expected
    shown = read_status(tmp_path / "d").partitions
    assert [(each.number, each.host) for each in shown] == [(number, -1) for number in range(4)]
    # a second run finds the end as it was
    assert features(path, tmp_path / "d", *overrides) == expected


def test_a_group_that_was_made_anew_goes_on_above_the_last_opening(
    address, shop, tmp_path, group_driver
):
    name, expected = shop
    path = definition(
        tmp_path, source_of(address, name, group=f"{name}-anew-{group_driver}", driver=group_driver)
    )
    shared = tmp_path / "shared"
    overrides = ["spec.runtime.partitions=4", f"spec.state.snapshots={{path: {shared}}}"]
    [pipeline] = {Assembly.load(path).name}
    folder = f"{pipeline}/of-4"
    partitions = [PartitionSnapshots(FolderObjects(shared), folder, n) for n in range(4)]
    for each in partitions:
        each.own(
            range(9 << 32, 10 << 32)
        )  # by somebody who left nothing else, in a group that is gone
    assert features(path, tmp_path / "d", *overrides) == expected
    first = [each.last_epoch for each in partitions]
    assert all(each >> 32 == 10 for each in first)
    features(path, tmp_path / "elsewhere", *overrides)
    assert all(now.last_epoch > last for now, last in zip(partitions, first, strict=True))


def test_another_number_of_partitions_is_refused_before_anything_is_made(address, shop, tmp_path):
    path = definition(tmp_path, source_of(address, shop[0]))
    with pytest.raises(SourceError, match=r"4 partitions.*set spec\.runtime\.partitions=4"):
        features(path, tmp_path / "d", "spec.runtime.partitions=16")
    assert not (tmp_path / "d").exists()
    assert not Assembly.load(path).is_placed
