"""A database that its disk has damaged, where there are snapshots of it and where there are none."""

import pytest

from walle_stream.app.resources import shipped_configs
from walle_stream.errors import StoreCorruptedError
from walle_stream.testing.kit import run_pipeline

SHOP = shipped_configs() / "shop.yaml"
KEYS = ["spec.source.devices=60", "spec.source.sessions=3", "spec.runtime.partitions=2"]


def cut(folder, pattern):
    for file in folder.glob(pattern):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def alter(folder, pattern):
    for file in folder.glob(pattern):
        file.write_bytes(b"\x55" * file.stat().st_size)


def remove(folder, pattern):
    for file in folder.glob(pattern):
        file.unlink()


DAMAGE = [
    (alter, "MANIFEST-*"),
    (alter, "CURRENT"),
    (cut, "*.sst"),
    (alter, "*.sst"),
    (remove, "*.sst"),
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return shown(run_pipeline(SHOP, tmp_path_factory.mktemp("whole"), KEYS))


def shown(rows):
    return sorted((row["device_id"], row["sequence_number"], str(row["feature"])) for row in rows)


@pytest.mark.parametrize(("damage", "pattern"), DAMAGE)
def test_a_damaged_database_goes_on_from_its_snapshot(tmp_path, caplog, expected, damage, pattern):
    keys = [*KEYS, f"spec.state.snapshots={{path: {tmp_path / 'snapshots'}}}"]
    data_dir = tmp_path / "d"
    run_pipeline(SHOP, data_dir, keys, 2_000)
    number, other = "00", "01"
    damage(data_dir / "partitions" / number, pattern)
    if damage is alter:  # one that has lost its beginning, too, of which nothing is put aside
        (data_dir / "partitions" / other / "CURRENT").unlink()
    assert shown(run_pipeline(SHOP, data_dir, keys)) == expected
    assert any(
        "a snapshot replaces the damaged database" in record.message for record in caplog.records
    )
    assert (data_dir / "partitions" / f"{number}.aside-damaged").exists()


def test_a_damaged_database_without_a_snapshot_is_said(tmp_path):
    run_pipeline(SHOP, tmp_path, KEYS, 2_000)
    alter(tmp_path / "partitions" / "00", "*.sst")
    with pytest.raises(StoreCorruptedError, match="is damaged: restore it from a copy"):
        run_pipeline(SHOP, tmp_path, KEYS)
