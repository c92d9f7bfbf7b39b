import io
from typing import Any

import pytest

from walle_stream.reading.dead_letters import text_digest
from walle_stream.reading.mapping.layout import JsonLayout
from walle_stream.reading.mapping.records import BrokenRow, CsvRecords, JsonRecords, JsonRows


class CountingStream(io.BytesIO):
    """Remembers the largest piece that was asked for at once."""

    largest = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.largest = max(self.largest, len(line))
        return line


def csv_rows(text: str | bytes, delimiter: str = ",", quote: str = '"', limit: int = 100) -> Any:
    data = text.encode() if isinstance(text, str) else text
    records = CsvRecords(io.BytesIO(data), delimiter, quote, limit)
    header = records.header()
    assert header is not None
    return list(records.rows(len(header)))


def json_rows(text: str | bytes, explode: str | None = None, limit: int = 100) -> Any:
    layout = JsonLayout(explode)
    for name in ("a", "b"):
        layout.load(name, lambda: "w")
    data = text.encode() if isinstance(text, str) else text
    return list(JsonRecords(io.BytesIO(data), JsonRows(layout), limit).rows())


def kinds(rows: Any) -> list[Any]:
    """Values, or the route of a broken row."""
    return [row[0].route if isinstance(row[0], BrokenRow) else row[0] for row in rows]


class TestCsv:
    def test_row_has_its_values_bytes_text_and_line(self) -> None:
        assert csv_rows("a,b\n1,2\r\n\n3,ä\n") == [
            (["1", "2"], 5, b"1,2\r\n", 2, -1),
            (["3", "ä"], 5, "3,ä\n".encode(), 4, -1),
        ]

    def test_last_line_needs_no_line_end(self) -> None:
        assert kinds(csv_rows("a,b\n1,2")) == [["1", "2"]]

    @pytest.mark.parametrize("delimiter", ["\t", ";", "|", " ", "→"])
    def test_any_character_can_be_the_delimiter(self, delimiter: str) -> None:
        text = 'a,b\n1,"x,y"\n'.replace(",", delimiter)
        assert kinds(csv_rows(text, delimiter)) == [["1", f"x{delimiter}y"]]

    def test_quotes_hold_delimiters_quotes_and_line_ends(self) -> None:
        rows = csv_rows('a,b\n"1,5","say ""hi""\nthere"\nx,y\n')
        assert kinds(rows) == [["1,5", 'say "hi"\nthere'], ["x", "y"]]
        assert [row[1:4] for row in rows] == [
            (25, b'"1,5","say ""hi""\nthere"\n', 2),
            (4, b"x,y\n", 4),
        ]

    def test_quote_inside_an_unquoted_value_means_itself(self) -> None:
        assert kinds(csv_rows('a,b\n5" disk,2\n')) == [['5" disk', "2"]]

    def test_quotes_mean_nothing_when_switched_off(self) -> None:
        assert kinds(csv_rows('a,b\n"x,y"\n', quote="")) == [['"x', 'y"']]

    def test_wrong_number_of_columns_is_broken(self) -> None:
        rows = csv_rows("a,b\n1\n1,2,3\n1,2\n")
        assert kinds(rows) == ["decode", "decode", ["1", "2"]]
        assert rows[1][0].reason == "the row has 3 columns, the header has 2"

    def test_bytes_that_are_not_utf8_are_broken(self) -> None:
        rows = csv_rows(b'a,b\n\xff,2\n"\xff",2\n1,"x\n\xff"\n1,2\n')
        assert kinds(rows) == ["decode", "decode", "decode", "decode", ["1", "2"]]

    def test_stray_quote_costs_its_line_only(self) -> None:
        rows = csv_rows('a,b\n1,"oops\n3,4\n5,6\n"7","8"\n9,10\n')
        assert kinds(rows) == ["decode", ["3", "4"], ["5", "6"], ["7", "8"], ["9", "10"]]
        assert [row[3] for row in rows] == [2, 3, 4, 5, 6]

    def test_quote_that_is_never_closed_costs_its_line_only(self) -> None:
        rows = csv_rows('a,b\n1,"oops\n3,4\n')
        assert kinds(rows) == ["decode", ["3", "4"]]
        assert "not closed before the end" in rows[0][0].reason
        rows = csv_rows('a,b\n1,"oops\n' + "3,4\n" * 40)
        assert kinds(rows) == ["decode"] + [["3", "4"]] * 40
        assert "not closed within 100 bytes" in rows[0][0].reason

    def test_text_behind_a_closing_quote_is_broken(self) -> None:
        assert kinds(csv_rows('a,b\n"x"y,2\n1,2\n')) == ["decode", ["1", "2"]]

    def test_long_line_is_oversized_and_never_held_whole(self) -> None:
        big = b"1," + b"x" * 10_000_000 + b"\n"
        stream = CountingStream(b"a,b\n" + big + b"3,4\n")
        records = CsvRecords(stream, ",", '"', 1_000)
        records.header()
        broken, row = records.rows(2)
        assert broken[0].route == "oversized"
        assert broken[0].digest == text_digest(big)
        assert (broken[1], len(broken[2])) == (len(big), 1_001)
        assert row[:1] + row[3:] == (["3", "4"], 3, -1)
        assert stream.largest <= 65_536

    def test_long_line_that_a_quote_runs_into_is_oversized_too(self) -> None:
        rows = csv_rows('a,b\n1,"x\n' + "y" * 500 + "\n5,6")
        assert kinds(rows) == ["decode", "oversized", ["5", "6"]]

    def test_record_of_exactly_the_bound_is_read(self) -> None:
        rows = csv_rows("a,b\n" + "x" * 97 + ",y\n" + "x" * 98 + ",y\n" + "x" * 98 + ",y")
        assert [type(row[0]) for row in rows] == [list, BrokenRow, list]

    def test_large_quoted_value_within_the_bound_is_read(self) -> None:
        big = "x" * 300_000
        assert kinds(csv_rows(f'a,b\n1,"{big}"\n', limit=2**20)) == [["1", big]]

    def test_file_without_lines_has_no_header(self) -> None:
        assert CsvRecords(io.BytesIO(b"\n\n"), ",", '"', 100).header() is None


class TestJson:
    def test_row_has_the_used_fields_only(self) -> None:
        ((row, size, text, line, place),) = json_rows('\n {"a":1,"c":[1,2],"b":null}\r\n \n')
        assert (row.f0, row.f1, hasattr(row, "c")) == (1, None, False)
        assert (size, text, line, place) == (29, b' {"a":1,"c":[1,2],"b":null}\r\n', 2, -1)

    @pytest.mark.parametrize(
        "text", ["{", "[1]", "5", "null", '"x"', '{"a":NaN}', '{"a":1}}', "\x00", '{"a":1e999}']
    )
    def test_line_that_is_no_record_is_broken(self, text: str) -> None:
        assert kinds(json_rows(text)) == ["decode"]
        assert kinds(json_rows(text, explode="x")) == ["decode"]

    def test_bytes_that_are_not_utf8_are_broken(self) -> None:
        assert kinds(json_rows(b'{"a":"\xff"}\n{"\xff":1}')) == ["decode", "decode"]

    def test_deep_nesting_is_broken(self) -> None:
        deep = b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
        assert kinds(json_rows(deep, limit=4_000_000)) == ["decode"]

    def test_long_line_is_oversized(self) -> None:
        rows = json_rows('{"a":"' + "x" * 200 + '"}\n{"a":1}')
        assert kinds(rows)[0] == "oversized"
        assert rows[1][0].f0 == 1

    def test_elements_are_rows_beside_their_record(self) -> None:
        rows = json_rows('{"b":9,"rows":[{"a":1},{"a":2,"b":3}]}\n{"rows":[]}\n', explode="rows")
        assert [(row[0][0].f0, row[0][1].f1, row[1], row[4]) for row in rows] == [
            (1, 9, 39, 0),
            (2, 9, 0, 1),
        ]

    def test_record_without_the_list_is_invalid(self) -> None:
        assert kinds(json_rows('{"a":1}\n{"rows":{}}', explode="rows")) == ["invalid", "invalid"]

    def test_element_that_is_no_object_is_invalid_alone(self) -> None:
        rows = json_rows('{"b":1,"rows":[{"a":1},7,{"a":2}]}', explode="rows")
        assert [type(row[0]) for row in rows] == [tuple, BrokenRow, tuple]
        assert [row[1] for row in rows] == [34, 0, 0]
