"""Durations, sizes and places of definitions, on random input."""

import re
from fractions import Fraction

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.spec.document import format_key
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.scalars import (
    format_duration,
    parse_duration_ms,
    parse_duration_or_never,
    parse_size_bytes,
)

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}  # fmt: skip
TEN_YEARS_MS = 3_650 * 86_400_000

numbers = st.one_of(
    st.integers(0, 10**7).map(str),
    st.tuples(st.integers(0, 10**5), st.from_regex(r"\A[0-9]{1,9}\Z")).map(lambda p: f"{p[0]}.{p[1]}"),
)  # fmt: skip
# JSON values as a person could write them; text that YAML needs no escapes for
words = st.from_regex(r"\A[a-z][a-z0-9_]{0,6}[xyz]\Z")
leaves = st.one_of(words, st.integers(-(2**63), 2**64 - 1), st.booleans(), st.none())
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=20,
)
documents = st.dictionaries(words, trees, min_size=1, max_size=5)


def outcome(parse, value):
    """Return what a parser found, or what it said; nothing but a ValueError may be raised."""
    try:
        return parse(value), ""
    except ValueError as error:
        return None, str(error)


def half_up(exact: Fraction) -> int:
    return int(exact + Fraction(1, 2))


@given(numbers, st.sampled_from(sorted(UNITS_MS)))
def test_a_duration_is_its_number_times_its_unit(number, unit):
    expected = half_up(Fraction(number) * UNITS_MS[unit])
    text = number + unit
    if expected > TEN_YEARS_MS:
        with pytest.raises(ValueError, match="ten years"):
            parse_duration_ms(text)
    else:
        assert parse_duration_ms(text) == parse_duration_or_never(text) == expected


@given(st.integers(0, TEN_YEARS_MS))
def test_a_formatted_duration_parses_to_itself(milliseconds):
    assert parse_duration_ms(format_duration(milliseconds)) == milliseconds


@given(numbers, st.sampled_from(["", " "]), st.sampled_from(sorted(UNITS_BYTES)))
def test_a_size_is_its_number_times_its_unit(number, space, unit):
    text = number + (space + unit if unit else "")
    assert parse_size_bytes(text) == half_up(Fraction(number) * UNITS_BYTES[unit])


@given(st.integers(0, 2**63 - 1))
def test_a_plain_number_is_a_size(size):
    assert parse_size_bytes(size) == parse_size_bytes(f"{size // 2**10}KiB") + size % 2**10


@given(st.one_of(st.text(), st.floats(), st.booleans(), st.none(), st.integers(max_value=-1), st.lists(st.integers())))  # fmt: skip
def test_whatever_is_no_duration_or_size_is_a_value_error_and_nothing_else(value):
    for parse in (parse_duration_ms, parse_duration_or_never, parse_size_bytes):
        found, message = outcome(parse, value)
        assert len(message) < 200
        assert message or found is None or found >= 0


def entries(value, key=()):
    """Every place below a value."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*key, name), item
            yield from entries(item, (*key, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*key, index), item
            yield from entries(item, (*key, index))


@given(documents, st.sampled_from([True, False, None]), st.integers(1, 2), st.integers(40, 120))
def test_every_value_is_found_at_its_place(tmp_path_factory, tree, flow, documents_before, width):
    dumped = yaml.safe_dump(tree, default_flow_style=flow, width=width, sort_keys=False)
    text = "first: 1\n---\n" * documents_before + dumped
    file = tmp_path_factory.getbasetemp() / "place.yaml"
    file.write_text(text)
    document = read_documents(file, {})[-1]
    assert document.value == tree
    lines = text.splitlines()
    for key, value in entries(tree):
        line, column = document.places[key]
        rest = lines[line - 1][column - 1 :]
        if not isinstance(value, (dict, list)):
            written = yaml.safe_dump(value).splitlines()[0]
            assert rest.startswith(written)
        if isinstance(key[-1], str):
            line, column = document.key_places[key]
            assert lines[line - 1][column - 1 :].startswith(key[-1])


@given(documents)
def test_an_error_names_its_place_once(tmp_path_factory, tree):
    file = tmp_path_factory.getbasetemp() / "error.yaml"
    file.write_text(yaml.safe_dump(tree))
    document = read_documents(file, {})[0]
    for key, _ in entries(tree):
        line, column = document.places[key]
        error = document.error(key, "wrong")
        assert str(error) == f"{file}:{line}:{column}: {format_key(key)}: wrong"


@given(st.one_of(st.text(max_size=200), st.text("ab:-[]{}&*!|>'\"%@#,?\n\t $", max_size=60)))
def test_any_text_is_read_or_refused_with_a_place(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    _, message = outcome(lambda path: read_documents(path, {}), file)
    assert not message or re.match(rf"{re.escape(str(file))}:[1-9]\d*:[1-9]\d*: .+\Z", message)
