"""A table's devices are shared out with what is kept of them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from made import call, numbers, record, stretch

from walle_stream.cloud.partition_table import PartitionTable, Place
from walle_stream.cloud.splitting import place_of, split_table

DEVICES = [f"d{number}" for number in range(20)]


def home(device):
    return 2 + 4 * (int(device[1:]) % 3)


def test_devices_go_with_their_heads_and_features(tmp_path):
    table = PartitionTable(tmp_path / "t", 3, keeps_calls=True)
    records = [record(device, number) for number in (1, 2) for device in DEVICES]
    table.take([stretch(*records), stretch(calls=[call("d1", 1)], numbers=[8])], b"here", 9)
    heads = {device: table.look_up(device).head for device in DEVICES}
    table.close()
    targets = {number: tmp_path / f"{number}" for number in (2, 6, 10)}
    split_table(tmp_path / "t", targets, home, b"begin")
    assert place_of(targets[2]) == Place(0, 9, b"here")
    assert place_of(targets[6]) == Place(0, 0, b"begin")
    for number, path in targets.items():
        table = PartitionTable(path, 3, keeps_calls=True)
        for device in DEVICES:
            kept = table.look_up(device)
            if home(device) != number:
                assert kept is None
                continue
            assert kept.head == heads[device]
            # what came twice is seen there, too
            table.take([stretch(record(device, 2), record(device, 3), partition=number)], b"", 12)
            assert numbers(table, device) == [3, 2, 1]
        assert len(table.open_calls(0, 9)) == (number == 2)
        table.close()
