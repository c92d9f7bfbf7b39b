"""A table's devices are shared out with what is kept of them."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import call, numbers, record, stretch

from walle_stream.cloud.merging import Place
from walle_stream.cloud.partition_table import PartitionTable, place_of
from walle_stream.cloud.splitting import split_table
from walle_stream.errors import StoreError

DEVICES = [f"d{number}" for number in range(20)]


def home(device):
    return 2 + 4 * (int(device[1:]) % 3)


def test_devices_go_with_their_heads_and_features(tmp_path):
    table = PartitionTable(tmp_path / "t", 3, keeps_calls=True)
    records = [record(device, number) for number in (1, 2) for device in DEVICES]
    table.take([stretch(*records)], b"here", 9)
    heads = {device: table.look_up(device).head for device in DEVICES}
    table.close()
    targets = {number: tmp_path / f"{number}" for number in (2, 6, 10)}
    split_table(tmp_path / "t", targets, home, b"begin")
    assert place_of(targets[2]) == Place(0, 9, b"here")
    assert place_of(targets[6]) == Place(0, 0, b"begin")
    for number, path in targets.items():
        table = PartitionTable(path, 3, keeps_calls=True)
        is_own = number == 2
        counts = table.stats.devices, table.stats.features
        here = sum(home(device) == number for device in DEVICES)
        assert counts == (here, 2 * len(DEVICES) if is_own else 0)
        for device in DEVICES:
            kept = table.look_up(device)
            if home(device) != number:
                assert kept is None
                continue
            assert kept.head == heads[device]
            # what came twice is seen there, too
            table.take([stretch(record(device, 2), record(device, 3), partition=number)], b"", 12)
            assert numbers(table, device) == [3, 2, 1]
        table.close()


def test_calls_are_answered_first(tmp_path):
    with closing(PartitionTable(tmp_path / "t", 3, keeps_calls=True)) as table:
        table.take([stretch(calls=[call("d1", 1)], numbers=[8])], b"here", 9)
    with pytest.raises(StoreError, match="wait for their answers"):
        split_table(tmp_path / "t", {2: tmp_path / "2", 6: tmp_path / "6"}, home, b"begin")
    assert not (tmp_path / "6").exists()
