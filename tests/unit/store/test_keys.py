from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.errors import StoreCorruptedError, StoreError
from walle_stream.store import keys
from walle_stream.store.keys import DeviceKeys
from walle_stream.store.transaction import prefix_end

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
TEXT = st.text(max_size=12)
# few letters, so that ids are often prefixes of each other
DEVICE_ID = st.text(st.sampled_from("ab\x01\x02\x10é\U0010ffff"), min_size=1, max_size=6)
TASK = st.text(st.sampled_from("ab\0\x01é"), max_size=5)


def all_keys(device_id: str, task: str, text: str, number: int) -> list[bytes]:
    device = DeviceKeys(device_id)
    return [
        device.row,
        device.page_row(number, number % 2**32),
        device.state(task, text),
        device.feature(task, number),
    ]


def test_layout_is_the_documented_bytes() -> None:
    device = DeviceKeys("é")
    assert device.row == b"\x10\xc3\xa9\x00\x01"
    assert device.page_row(1, 2) == b"\x10\xc3\xa9\x00\x02" + bytes(7) + b"\x01\x00\x00\x00\x02"
    assert device.state("t\0", "k") == b"\x10\xc3\xa9\x00\x03\x00\x02t\x00k"
    assert device.feature("t", 258) == b"\x10\xc3\xa9\x00\x04\x00\x01t" + bytes(6) + b"\x01\x02"
    assert keys.message_key(7) == b"\x09" + bytes(7) + b"\x07"
    assert keys.sender_key("é") == b"\x0a\xc3\xa9"
    assert keys.outbox_key(1) == b"\x01" + bytes(7) + b"\x01"
    assert keys.dead_letter_key(1) == b"\x02" + bytes(7) + b"\x01"
    assert keys.letter_record_key(1) == b"\x05" + bytes(7) + b"\x01"
    assert keys.unsent_letter_key(1) == b"\x06" + bytes(7) + b"\x01"
    assert keys.deadline_key("é") == b"\x03\xc3\xa9"


@given(first=DEVICE_ID, second=DEVICE_ID, task=TASK, text=TEXT, number=U64)
def test_keys_of_one_device_never_lie_in_another_devices_range(
    first: str, second: str, task: str, text: str, number: int
) -> None:
    base = DeviceKeys(first).base
    for key in all_keys(second, task, text, number):
        assert (base <= key < prefix_end(base)) == (first == second)
        assert key.startswith(base) == (first == second)


@given(first=TASK, second=TASK, text=TEXT, number=U64)
def test_scan_of_one_task_never_meets_anothers_rows(
    first: str, second: str, text: str, number: int
) -> None:
    device = DeviceKeys("d")
    assert device.state(second, text).startswith(device.states(first)) == (first == second)
    assert device.state(first, text)[len(device.states(first)) :].decode() == text


@given(one=st.tuples(U64, U32), other=st.tuples(U64, U32))
def test_numbers_sort_as_numbers(one: tuple[int, int], other: tuple[int, int]) -> None:
    device = DeviceKeys("d")
    assert (device.page_row(*one) < device.page_row(*other)) == (one < other)
    assert (device.feature("t", one[0]) < device.feature("t", other[0])) == (one[0] < other[0])
    assert (keys.message_key(one[0]) < keys.message_key(other[0])) == (one[0] < other[0])
    assert (keys.outbox_key(one[0]) < keys.outbox_key(other[0])) == (one[0] < other[0])
    assert (keys.dead_letter_key(one[0]) < keys.dead_letter_key(other[0])) == (one[0] < other[0])


@given(device_id=DEVICE_ID, task=TASK, text=TEXT, number=U64)
def test_hot_rows_come_before_state_and_features(
    device_id: str, task: str, text: str, number: int
) -> None:
    built = all_keys(device_id, task, text, number)
    assert built == sorted(built)


@given(first=DEVICE_ID, second=DEVICE_ID)
def test_devices_sort_by_their_utf8(first: str, second: str) -> None:
    is_before = DeviceKeys(first).row < DeviceKeys(second).row
    assert is_before == (first.encode() < second.encode())


@given(device_id=DEVICE_ID, task=TASK, text=TEXT, number=U64, index=U32)
def test_parsers_return_what_was_built(
    device_id: str, task: str, text: str, number: int, index: int
) -> None:
    device = DeviceKeys(device_id)
    assert keys.parse_device(device.row) == (device_id, keys.TABLE_DEVICE, b"")
    page = device.page_row(number, index)
    assert keys.parse_device(page)[:2] == (device_id, keys.TABLE_PAGE)
    assert keys.parse_page_row(page) == (number, index)
    _, table, rest = keys.parse_device(device.state(task, text))
    assert (table, keys.parse_task(rest)) == (keys.TABLE_STATE, (task, text.encode()))
    _, table, rest = keys.parse_device(device.feature(task, number))
    assert (table, keys.parse_task(rest)) == (keys.TABLE_FEATURE, (task, number.to_bytes(8)))
    assert keys.parse_number(keys.outbox_key(number)) == number


@given(device_id=DEVICE_ID, number=U64)
def test_partition_wide_rows_lie_outside_the_devices(device_id: str, number: int) -> None:
    end = prefix_end(keys.DEVICE_PREFIX)
    for key in (
        keys.FORMAT_KEY,
        keys.TABLES_KEY,
        keys.HEAD_KEY,
        keys.OFFSET_KEY,
        keys.EPOCH_KEY,
        keys.outbox_key(number),
        keys.dead_letter_key(number),
        keys.letter_record_key(number),
        keys.unsent_letter_key(number),
        keys.deadline_key(device_id),
    ):
        assert not keys.DEVICE_PREFIX <= key < end


@pytest.mark.parametrize("device_id", ["", "\0", "a\0", "a\0b"])
def test_device_id_that_would_break_the_ranges_is_refused(device_id: str) -> None:
    with pytest.raises(StoreError, match="NUL"):
        DeviceKeys(device_id)


def test_numbers_and_names_that_do_not_fit_are_refused() -> None:
    device = DeviceKeys("d")
    with pytest.raises(StoreError, match="row 4294967296"):
        device.page_row(0, 2**32)
    with pytest.raises(StoreError, match="18446744073709551616"):
        device.feature("t", 2**64)
    with pytest.raises(StoreError, match="-1"):
        keys.outbox_key(-1)
    with pytest.raises(StoreError, match="65536 bytes"):
        device.states("t" * 65_536)


@given(key=st.binary(max_size=8))
def test_damaged_keys_are_parsed_or_named_never_a_foreign_error(key: bytes) -> None:
    for parse in (keys.parse_device, keys.parse_number, keys.parse_page_row, keys.parse_task):
        with suppress(StoreCorruptedError):
            parse(key)
    with pytest.raises(StoreCorruptedError, match="no known layout"):
        keys.parse_task(b"\x00\x09" + key)
