import json
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from walle_connectors.files import FilesModel
from walle_stream.events import Event
from walle_stream.reading.mapping.compiling import InvalidRow, MappingError, compile_mapping
from walle_stream.reading.mapping.layout import CsvLayout, JsonLayout

HEADER = ("d", "t", "a", "b", "s")
TYPES = {"t": "int", "a": "int", "b": "float"}


def build(cells: str, events: Any = None, **keys: Any) -> Any:
    """Map one CSV row of the columns above."""
    keys = {"columns": TYPES, "device": "d", "time": "t"} | keys
    keys["events"] = events or [{"kind": "click", "page": "'p'"}]
    model = FilesModel.model_validate({"path": "x.csv", "format": "csv", **keys})
    return compile_mapping(model, CsvLayout(model.columns, HEADER))(cells.split(","))


def value(expression: str, cells: str = "dev,5,7,2.5,text") -> Any:
    """Compute one expression, as contents."""
    event = {"kind": "click", "page": "'p'", "contents": {"v": expression}}
    result = build(cells, [event])
    return result.reason if isinstance(result, InvalidRow) else result[3][0].contents["v"]


def json_row(record: dict[str, Any], **keys: Any) -> Any:
    keys = {"device": "d", "time": "t", "events": [{"kind": "click", "page": "'p'"}]} | keys
    model = FilesModel.model_validate({"path": "x", "format": "jsonl", **keys})
    layout = JsonLayout(None)
    function = compile_mapping(model, layout)
    return function(msgspec.json.decode(json.dumps(record), type=layout.row_type()))


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("a", 7),
        ("a + 1 - 2 * 3", 2),
        ("a / 2", 3.5),
        ("a // 2 + a % 4", 6),
        ("-a", -7),
        ("b", 2.5),
        ("s + '!' + str(a)", "text!7"),
        ("a > 6 and s == 'text'", True),
        ("a < 6 or not s", False),
        ("1 < a < 9", True),
        ("a in (6, 7)", True),
        ("s not in ['text']", False),
        ("'ex' in s", True),
        ("'yes' if a == 7 else 'no'", "yes"),
        ("len(s) + abs(-2) + min(a, 3) + max(1, 2)", 11),
        ("round(b) + round(b * 1.11, 1)", 4.8),
        ("upper(s) + lower('X') + strip(' y ')", "TEXTxy"),
        ("split('1|2', '|')", ["1", "2"]),
        ("split('1|2', '|')[-1] + s[0]", "2t"),
        ("int('12') + int(b)", 14),
        ("float('1.5')", 1.5),
        ("get('a', 0) + get('nope', 1)", 8),
        ("flags(x=a == 7, y=a == 8, z=s)", ["x", "z"]),
        ("None", None),
        ("get('s') is None", False),
    ],
)
def test_expression_gives_its_value(expression: str, wanted: Any) -> None:
    assert value(expression) == wanted
    assert type(value(expression)) is type(wanted)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a // 0", "events[0].contents.v: "),
        ("int(s)", "events[0].contents.v: invalid literal"),
        ("float('nan')", "not a finite number"),
        ("b * 1e308 * 1e308", "not a finite number"),
        ("a * 9000000000000000000", "more than 64 bits"),
        ("split(s, '')", "events[0].contents.v: empty separator"),
        ("s[99]", "index out of range"),
        ("split(s, 'x')[7]", "index out of range"),
    ],
)
def test_failed_expression_makes_the_row_invalid_with_the_key(expression: str, reason: str) -> None:
    assert reason in value(expression)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("s * 3", "text * a number cannot be computed"),
        ("s % 3", "text % a number cannot be computed"),
        ("s + a", "position 1: text + a number"),
        ("a == 'x'", "is compared with"),
        ("s in (1, 2)", "is compared with"),
        ("a in b", "nothing can be in a number"),
        ("-s", "text has no sign"),
        ("len(a)", "has no length"),
        ("upper(a)", "upper() takes text"),
        ("a[0]", "has no parts"),
    ],
)
def test_expression_that_can_never_work_is_refused_with_key_and_position(
    expression: str, reason: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        value(expression)
    message = str(caught.value)
    assert reason in message
    assert "events[0].contents.v: position" in message


def test_unknown_column_is_named_with_the_closest_one() -> None:
    with pytest.raises(
        MappingError, match=r"device: position 1: .*no column 'dd'; did you mean 'd'"
    ):
        build("x,1,1,1,1", device="dd")


def test_column_that_occurs_twice_is_refused() -> None:
    model = FilesModel.model_validate(
        {
            "path": "x",
            "format": "csv",
            "device": "d",
            "time": "int(t)",
            "events": [{"kind": "click", "page": "d"}],
        }
    )
    with pytest.raises(MappingError, match="2 columns 'd'"):
        compile_mapping(model, CsvLayout({}, ["d", "t", "d"]))


def test_bad_cell_names_its_column() -> None:
    assert build("dev,soon,1,1,x") == InvalidRow(
        "column t: invalid literal for int() with base 10: 'soon'", "ValueError", "dev"
    )


def test_column_is_converted_only_where_a_row_needs_it() -> None:
    event = {"kind": "click", "when": "s == 'buy'", "page": "'p'", "contents": {"price": "a"}}
    assert build("dev,5,,1,view", [event])[3] == []
    assert "column a" in build("dev,5,,1,buy", [event]).reason
    assert build("dev,5,9,1,buy", [event])[3][0].contents == {"price": 9}


def test_branch_that_is_not_taken_converts_nothing() -> None:
    assert value("a if s == 'x' else -1", "dev,5,bad,1,text") == -1


def test_let_values_are_computed_in_terms_of_each_other_and_only_when_needed() -> None:
    let = {"twice": "a * 2", "more": "str(twice) + s", "a_broken": "1 // (a - a)"}
    event = {"kind": "click", "page": "more"}
    assert build("dev,5,7,1,x", [event], let=let)[3][0].page_id == "14x"


def test_let_value_may_replace_the_column_of_its_name() -> None:
    event = {"kind": "click", "page": "s"}
    assert build("dev,5,7,1,x", [event], let={"s": "upper(s) + '!'"})[3][0].page_id == "X!"


def test_let_value_that_needs_itself_through_another_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"let\.x needs itself"):
        build("dev,5,7,1,x", device="x", let={"x": "y", "y": "x"})


def test_let_value_that_nothing_uses_is_checked_too() -> None:
    with pytest.raises(ValidationError, match=r"let.x: position 1: text \* a number"):
        build("dev,5,7,1,x", let={"x": "s * 2"})


def test_failure_in_a_let_value_names_it() -> None:
    event = {"kind": "click", "page": "str(ratio)"}
    result = build("dev,5,0,1,x", [event], let={"ratio": "1 / a"})
    assert (result.reason, result.error) == ("let.ratio: division by zero", "ZeroDivisionError")


def test_let_values_cannot_grow_without_bound() -> None:
    let = {f"x{n}": f"x{n - 1} + x{n - 1}" for n in range(1, 40)} | {"x0": "s + s"}
    result = build("dev,5,0,1,abcdefgh", [{"kind": "click", "page": "x39"}], let=let)
    assert "longer than" in result.reason


def test_event_has_everything_that_was_declared() -> None:
    event = {
        "kind": "page_enter",
        "id": "'enter_' + s",
        "at": "t + a",
        "page": "'p'",
        "instance": "a",
        "uid": "d + '@' + str(t)",
        "contents": {"item": "s", "n": 3, "yes": True, "none": "None"},
    }
    device_id, time_ms, identity, now, timed = build("dev,5,7,1,x", [event], identity=["d", "t"])
    assert (device_id, time_ms, identity, now) == ("dev", 5, ("dev", 5), [])
    contents = {"item": "x", "n": 3, "yes": True, "none": None}
    wanted = Event("dev", "enter_x", "page_enter", "p", "7", 12, 5, contents, "dev@5")
    assert timed == [(12, wanted)]


def test_event_id_is_the_kind_unless_declared() -> None:
    assert build("dev,5,7,1,x")[3][0].id == "click"


def test_each_repeats_the_event_with_a_number_from_1() -> None:
    each = {"name": "word", "index": "k", "in": "split(s, '|')"}
    event = {"kind": "click", "each": each, "at": "t + k", "page": "word", "when": "word != 'no'"}
    _, _, _, now, timed = build("dev,5,7,1,x|no|y", [event])
    assert now == []
    assert [(at_ms, event.page_id) for at_ms, event in timed] == [(6, "x"), (8, "y")]


def test_name_of_each_is_not_visible_in_let_values_nor_after_the_loop() -> None:
    each = {"name": "s", "in": "split('q', '|')"}
    events = [
        {"kind": "click", "each": each, "page": "s + seen"},
        {"kind": "click", "page": "s"},
    ]
    now = build("dev,5,7,1,col", events, let={"seen": "s"})[3]
    assert [event.page_id for event in now] == ["qcol", "col"]


def test_each_over_too_many_values_is_invalid() -> None:
    event = {"kind": "click", "each": {"name": "w", "in": "split(s, '|')"}, "page": "w"}
    assert "at most 10000" in build("dev,5,7,1," + "x|" * 10_000, [event]).reason


def test_each_over_something_else_is_refused() -> None:
    event = {"kind": "click", "each": {"name": "w", "in": "s"}, "page": "w"}
    with pytest.raises(ValidationError, match=r"each\.in: it is not a list"):
        build("dev,5,7,1,x", [event])


def test_values_of_a_block_are_not_used_where_it_was_not_entered() -> None:
    events = [
        {"kind": "click", "when": "a > 0", "page": "'p'", "contents": {"v": "text"}},
        {"kind": "click", "when": "a < 0", "page": "'q'", "contents": {"v": "text"}},
        {"kind": "click", "when": "a > 0", "page": "'r'", "contents": {"v": "text"}},
    ]
    let = {"text": "s + str(b)"}
    assert [e.page_id for e in build("dev,5,1,2,x", events, let=let)[3]] == ["p", "r"]
    assert [e.page_id for e in build("dev,5,-1,2,x", events, let=let)[3]] == ["q"]
    assert build("dev,5,-1,2,x", events, let=let)[3][0].contents == {"v": "x2.0"}


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"time": "-t"}, "time: -5 is outside 0"),
        ({"time": "t * 9007199254740991"}, "is outside 0"),
        ({"events": [{"kind": "click", "page": "strip('')"}]}, "events[0].page: it is empty"),
        ({"events": [{"kind": "click", "page": "'p'", "id": "strip('')"}]}, "events[0].id: it is"),
        ({"events": [{"kind": "click", "page": "'p'", "at": "-t"}]}, "events[0].at: -5 is outside"),
    ],
)
def test_missing_or_impossible_part_is_invalid(keys: dict[str, Any], reason: str) -> None:
    assert reason in build("dev,5,7,1,x", **keys).reason


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"time": "s"}, "time: it is not an integer of milliseconds: give the column the type int"),
        ({"time": "t / 1000"}, "time: it is not an integer"),
        ({"device": "b"}, "device: it is not text"),
        ({"identity": ["split(s, 'x')"]}, "identity[0]: a list cannot be"),
        ({"events": [{"kind": "click", "page": "'p'", "uid": "b"}]}, "events[0].uid: it is not"),
    ],
)
def test_part_of_an_impossible_type_is_refused(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        build("dev,5,7,1,x", **keys)
    assert reason in str(caught.value)


def test_failure_in_an_event_keeps_time_and_identity() -> None:
    event = {"kind": "click", "page": "'p'", "contents": {"v": "1 // a"}}
    result = build("dev,5,0,1,x", [event], identity=["d", "s"])
    assert (result.device_id, result.known) == ("dev", (5, ("dev", "x")))


def test_bool_column_reads_ones_and_words() -> None:
    found = [
        build(f"dev,5,7,1,{cell}", [{"kind": "click", "when": "s", "page": "'p'"}], columns=types)
        for types in [TYPES | {"s": "bool"}]
        for cell in ("1", "TRUE", "0", "false", "maybe")
    ]
    assert [len(result[3]) for result in found[:4]] == [1, 1, 0, 0]
    assert "column s: 'maybe' is not a bool" in found[4].reason


def test_empty_cell_counts_as_missing_for_get() -> None:
    assert value("get('a', -1)", "dev,5,,1,x") == -1


class TestJson:
    def test_values_are_taken_as_they_are(self) -> None:
        record = {"d": 17, "t": 5, "x": [1, {"y": None}], "z": True}
        events = [{"kind": "click", "page": "'p'", "contents": {"x": "x", "y": "x[1]['y']"}}]
        device_id, _, _, now, _ = json_row(record, events=events)
        assert device_id == "17"
        assert now[0].contents == {"x": [1, {"y": None}], "y": None}

    def test_missing_field_is_invalid_where_it_is_needed(self) -> None:
        assert json_row({"t": 5}).reason == "device: the row has no 'd'"
        assert json_row({"d": "a"}) == InvalidRow("time: the row has no 't'", "LookupError", "a")
        event = {"kind": "click", "when": "kind == 'x'", "page": "missing"}
        assert json_row({"d": "a", "t": 1, "kind": "y"}, events=[event])[3] == []

    @pytest.mark.parametrize("time", [None, "5", 5.0, True, -1, 2**60, [5]])
    def test_time_must_be_an_integer_of_milliseconds(self, time: Any) -> None:
        assert json_row({"d": "a", "t": time}).reason.startswith("time: ")

    @pytest.mark.parametrize("device", [None, 1.5, True, [], {}])
    def test_device_must_be_text_or_an_integer(self, device: Any) -> None:
        assert "is not text" in json_row({"d": device, "t": 1}).reason

    def test_get_reads_any_name_and_treats_null_as_missing(self) -> None:
        events = [{"kind": "click", "page": "get('page-name', 'none')"}]
        found = [
            json_row({"d": "a", "t": 1} | extra, events=events)[3][0].page_id
            for extra in ({"page-name": "x"}, {"page-name": None}, {})
        ]
        assert found == ["x", "none", "none"]

    @pytest.mark.parametrize(
        ("expression", "record", "reason"),
        [
            ("x * 3", {"x": "abc"}, "only numbers can be multiplied"),
            ("x * 3", {"x": [1]}, "only numbers can be multiplied"),
            ("x % 3", {"x": "%d"}, "only numbers have a remainder"),
            ("x['k']", {"x": {}}, "contents.v: k"),
            ("x + 1", {"x": None}, "unsupported operand"),
            ("x", {"x": 2**70}, "more than 64 bits"),
            ("x", {"x": [[2**70]]}, "more than 64 bits"),
            ("upper(x)", {"x": 1}, "contents.v: "),
        ],
    )
    def test_value_of_another_type_makes_the_row_invalid(
        self, expression: str, record: dict[str, Any], reason: str
    ) -> None:
        events = [{"kind": "click", "page": "'p'", "contents": {"v": expression}}]
        assert reason in json_row({"d": "a", "t": 1} | record, events=events).reason

    def test_deeply_nested_contents_are_invalid(self) -> None:
        nested: Any = 1
        for _ in range(60):
            nested = [nested]
        events = [{"kind": "click", "page": "'p'", "contents": {"v": "x"}}]
        assert "nested more than" in json_row({"d": "a", "t": 1, "x": nested}, events=events).reason

    def test_list_in_the_identity_is_invalid(self) -> None:
        assert "identity[0]" in json_row({"d": "a", "t": 1, "x": []}, identity=["x"]).reason
