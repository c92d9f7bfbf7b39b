"""Strict JSON against Python's own reader, asked about each pair and each number."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from walle_stream.wire.strict_json import DEPTH_MAX, object_problem

TOKENS = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "\t",
            '"',
            "\\",
            "\\u003a",
            "\\u0061",
            "\\ud800",
        ),
        *('"a"', '"a":', '"a" :', '"b":', '"\\u0061":', '":"', '"a:b"', '"},{"', "{}", "[]"),
        *(
            "1",
            "-0",
            "01",
            "1e5",
            "1e999",
            "1E-5",
            "NaN",
            "null",
            "true",
            "9" * 40,
            "\u2028",
            "\x1b",
        ),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("abc:{") | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


class NoValueError(ValueError):
    """Python's reader would take it, others would not, or another value."""


def takes(data: bytes) -> bool:
    """Whether it is one JSON object, looked at piece by piece."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in found}) < len(found):
            raise NoValueError
        return dict(found)

    def number(text: str) -> float:
        if math.isinf(float(text)):
            raise NoValueError
        return float(text)

    def refuse(_: str) -> None:
        raise NoValueError

    def depth(value: Any) -> int:
        if not isinstance(value, dict | list):
            return 0
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, inner), default=0)

    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=pairs, parse_float=number, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    is_line = "\n" not in text and "\r" not in text and text[0] != "\ufeff"
    return is_line and isinstance(value, dict) and depth(value) <= DEPTH_MAX


@given(st.lists(TOKENS, max_size=12).map("".join))
def test_any_text_is_judged_as_python_judges_it(text: str) -> None:
    for each in (text, "{" + text + "}", '{"a":1,' + text + "}"):
        assert (object_problem(each.encode()) is None) == takes(each.encode())


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.data())
def test_altered_bytes_are_judged_as_python_judges_them(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "replace")
    assert (object_problem(text) is None) == takes(text)
    begin, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    altered = text[:begin] + data.draw(TOKENS).encode() + text[end:]
    doubled = text[:end] + text[begin:]
    for each in (altered, doubled, text[begin:end]):
        assert (object_problem(each) is None) == takes(each)


@given(st.integers(1, 4), st.integers(-2, 2), st.sampled_from(["[", '{"a":']))
def test_depth_is_exact_whatever_stands_beside(rows: int, off: int, opening: str) -> None:
    count = DEPTH_MAX - 1 + off
    deep = opening * count + "0" + {"[": "]"}.get(opening, "}") * count
    text = f'{{"r":[{",".join(["{}"] * rows * 40)}],"t":"}},{{","d":{deep}}}'.encode()
    assert (object_problem(text) is None) == takes(text) == (off <= 0)
