import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.spec.scalars import parse_duration_ms, parse_duration_or_never, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("10s", 10_000), ("30m", 1_800_000), ("1.5h", 5_400_000), ("2d", 172_800_000)],
)
def test_durations(text, milliseconds):
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "10", "s", "10 s", "-1s", "1w", "1e3s", "never", None, 10, [], True]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration_ms(text)


def test_a_duration_of_centuries_is_refused():
    with pytest.raises(ValueError, match="ten years"):
        parse_duration_ms("99999d")


def test_never_is_none():
    assert parse_duration_or_never("never") is None
    assert parse_duration_or_never("1s") == 1000


@given(st.integers(0, 10**9))
def test_whole_milliseconds_survive(number):
    assert parse_duration_ms(f"{number}ms") == number


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 67_108_864), ("1MB", 10**6), ("512KiB", 524_288), (4096, 4096), ("7", 7)],
)
def test_sizes(text, size):
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "1 mib", "-1", True, None, 1.5])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="expected a size"):
        parse_size_bytes(text)
