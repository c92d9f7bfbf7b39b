import csv
import json
import os
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from walle_stream.app.queries.exporting import export_features
from walle_stream.errors import MalformedRowError, StoreError, WalleError
from walle_stream.wire.frame import FeatureRecord


def feature(number, value, encoding=b""):
    return FeatureRecord("d", "ipv", "v1", number, json.dumps(value).encode(), encoding)


def exported(tmp_path, kind, *values, encoding=b""):
    records = [feature(number, value, encoding) for number, value in enumerate(values, 1)]
    file = tmp_path / f"f.{kind}"
    done = export_features(lambda: records, file, kind)
    assert done.features == len(values)
    if kind == "csv":
        with file.open(newline="") as lines:
            return list(csv.DictReader(lines))
    return parquet.read_table(file).to_pylist()


def fields(rows):
    return [
        {name[8:]: value for name, value in row.items() if name.startswith("feature.")}
        for row in rows
    ]


def test_each_field_is_a_column_of_its_type(tmp_path):
    value = {"n": 1, "share": 0.5, "item": "ä,\n", "is_new": True, "clicks": {"b": [1], "a": 2}}
    rows = exported(tmp_path, "parquet", value, {"n": None}, encoding=b"\x00\xff")
    assert fields(rows) == [
        {**value, "clicks": '{"a":2,"b":[1]}'},
        dict.fromkeys(value),
    ]
    own = ("device_id", "task", "task_version", "sequence_number", "encoding")
    assert [rows[1][name] for name in own] == ["d", "ipv", "v1", 2, b"\x00\xff"]
    [row, _] = exported(tmp_path, "csv", value, {}, encoding=b"\x00\xff")
    assert (row["feature.item"], row["encoding"]) == ("ä,\n", "00ff")
    assert row["feature.is_new"] == "true"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1, 2.5), [1.0, 2.5]),
        ((1, "x"), ["1", '"x"']),
        ((True, 1), ["true", "1"]),
        ((2**63, 1), ["9223372036854775808", "1"]),
        ((2**53 + 1, 1), [2**53 + 1, 1]),
        ((2**53 + 1, 0.5), ["9007199254740993", "0.5"]),
        ((None, None), [None, None]),
        ((None, 7), [None, 7]),
        (([1], None), ["[1]", None]),
    ],
)
def test_a_field_of_several_types_is_json_text(tmp_path, values, expected):
    rows = exported(tmp_path, "parquet", *({"x": value} for value in values))
    assert [row["x"] for row in fields(rows)] == expected


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers()),
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), min_size=1))
def test_nothing_is_lost_whatever_the_types(tmp_path_factory, values):
    rows = fields(exported(tmp_path_factory.mktemp("x"), "parquet", *values))
    for row, value in zip(rows, values, strict=True):
        for name, held in row.items():
            wanted = value.get(name)
            is_json = isinstance(held, str) and not isinstance(wanted, str)
            if held != wanted:
                assert is_json or isinstance(wanted, str)
                held = json.loads(held)  # noqa: PLW2901
            assert held == wanted


def test_what_a_run_adds_meanwhile_is_there_whole(tmp_path):
    calls = []

    def read():
        calls.append(0)
        yield feature(1, {"a": 1})
        if len(calls) > 1:
            yield feature(2, {"a": "x", "b": 2})

    export_features(read, tmp_path / "f.parquet", "parquet")
    found = fields(parquet.read_table(tmp_path / "f.parquet").to_pylist())
    assert found == [{"a": "1", "b": None}, {"a": '"x"', "b": 2}]
    assert len(calls) == 4


def test_a_run_that_changes_types_all_the_time_is_given_up(tmp_path):
    numbers = count()

    def read():
        yield feature(1, {f"f{next(numbers)}": 1})

    with pytest.raises(WalleError, match="stop it"):
        export_features(read, tmp_path / "f.csv", "csv")
    assert not [*tmp_path.iterdir()]


def test_a_link_is_followed_and_no_pipe_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    export_features(list, tmp_path / "link", "csv")
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WalleError, match="no regular file"):
        export_features(list, tmp_path / "pipe", "csv")
    assert (tmp_path / "pipe").is_fifo()


def test_what_is_malformed_is_left_out_and_said(tmp_path):
    def read():
        yield feature(1, {"a": 1})
        raise MalformedRowError("one is left out")

    with pytest.raises(MalformedRowError):
        export_features(read, tmp_path / "f.csv", "csv")
    assert (tmp_path / "f.csv").read_text().splitlines()[1] == "d,ipv,v1,1,1"


def test_without_features_there_are_columns(tmp_path):
    assert export_features(list, tmp_path / "f.parquet", "parquet") == (0, 4)
    assert parquet.read_table(tmp_path / "f.parquet").num_rows == 0


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    file = tmp_path / "f.csv"
    file.write_text("before")

    def read():
        yield feature(1, {})
        raise WalleError("gone")

    with pytest.raises(WalleError, match="gone"):
        export_features(read, file, "csv")
    assert [file.read_text(), *tmp_path.iterdir()] == ["before", file]
    with pytest.raises(StoreError, match=r"none/f\.csv"):
        export_features(list, tmp_path / "none/f.csv", "csv")
