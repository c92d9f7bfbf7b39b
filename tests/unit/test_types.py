import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_connectors.kafka import CONNECTOR as KAFKA
from walle_stream.types import (
    DEVICE_ID_MAX_BYTES,
    device_id_problem,
    partition_of,
    placing_mark,
)


def test_placement_never_changes():
    # these are on disk at users: other numbers need another format version
    devices = ["0", "1", "device-42", "ü", "x" * 1024]
    assert [partition_of(device, 16) for device in devices] == [5, 6, 13, 7, 11]
    assert [partition_of(device, 7) for device in devices] == [2, 2, 4, 3, 0]


@given(
    st.text(min_size=1).filter(lambda text: device_id_problem(text) is None), st.integers(1, 4096)
)
def test_a_device_is_placed_in_range(device, count):
    assert 0 <= partition_of(device, count) < count


def test_placement_does_not_depend_on_the_hash_seed():
    code = "from walle_stream.types import partition_of as p; print([p(str(i), 16) for i in range(99)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert outputs == {f"{[partition_of(str(i), 16) for i in range(99)]}\n".encode()}


def test_devices_spread_over_all_partitions():
    counts = [0] * 16
    for number in range(16_000):
        counts[partition_of(f"device-{number}", 16)] += 1
    assert min(counts) > 800
    assert max(counts) < 1_200


@pytest.mark.parametrize("device", ["a", " ", "ü" * (DEVICE_ID_MAX_BYTES // 2), "x" * 1024, "a\nb"])
def test_text_of_1_to_1024_bytes_is_a_device_id(device):
    assert device_id_problem(device) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "NoneType, not text"),
        (7, "int, not text"),
        (b"a", "bytes, not text"),
        ("", "empty"),
        ("a\0b", "NUL"),
        ("\ud800", "not valid Unicode"),
        ("x" * 1025, "1025 bytes, at most 1024"),
        ("ü" * 513, "1026 bytes, at most 1024"),
    ],
)
def test_what_is_no_device_id_has_a_reason(value, reason):
    assert reason in device_id_problem(value)


def test_each_placing_has_its_own_mark():
    assert placing_mark(partition_of) == 0
    assert placing_mark(KAFKA.device_partition) > 0
