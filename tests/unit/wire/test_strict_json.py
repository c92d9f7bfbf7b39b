"""What a guest's JSON must be before anybody stores, sends or prints it."""

import pytest

from walle_stream.wire.strict_json import DEPTH_MAX, KEYS_MAX, object_problem, value_problem

DEEPEST = b'{"a":' + b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1) + b"}"

GOOD = {
    "empty": b"{}",
    "flat": b'{"a":1,"b":"x"}',
    "nested": b'{"a":{"a":[{"a":1},{"a":2}]}}',
    "colons in texts": b'{"a":"12:30","b":{"c":"::"}}',
    "an exponent as Python writes it": b'{"a":1e-05,"b":{"c":1e+16}}',
    "an escape as Python writes it": b'{"a":"\\u001b","b":{"c":1}}',
    "an escaped colon": b'{"a":"\\u003a","b":1}',
    "an escape of another case": b'{"a":"\\u003A","b":{"c":":"}}',
    "spaces": b' {"a" :\t1} ',
    "more than 64 bits": b'{"a":%d}' % 2**100,
    "as many digits as are taken": b'{"a":' + b"9" * 4300 + b"}",
    "text beyond ASCII": '{"ä":"日本\u2028"}'.encode(),
    "as deep as may be": DEEPEST,
    "many rows": b'{"rows":[' + b",".join([b'{"a":[1,2]}'] * 500) + b"]}",
    "braces in texts": b'{"a":"' + b"{" * 500 + b'"}',
    "as many keys as may be": b"{" + b",".join(b'"%d":0' % n for n in range(KEYS_MAX)) + b"}",
}

BAD = {
    "nothing": b"",
    "a list": b"[]",
    "a number": b"1",
    "two on one line": b'{"a":1}{"b":2}',
    "two lines": b'{"a":1}\n{"b":2}',
    "a line end behind": b'{"a":1}\n',
    "a line end inside": b'{"a":1,\n"b":2}',
    "a carriage return": b'{"a":1,\r"b":2}',
    "cut": b'{"a":1',
    "a byte order mark": b'\xef\xbb\xbf{"a":1}',
    "a key twice": b'{"a":1,"a":1}',
    "a key twice, one escaped": b'{"a":1,"\\u0061":1}',
    "a key twice, with a space": b'{"a" :1,"a":1}',
    "a key twice, far below": b'{"a":[{"b":{"c":1,"c":{}}}]}',
    "a key twice, a colon hidden": b'{"a":1,"a":"\\u003a"}',
    "a key twice, a colon hidden below": b'{"b":{"a":1,"a":"\\u003A"}}',
    "a key twice, a colon in a text": b'{"a":":","a":1}',
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "a number beyond a double": b'{"a":1e999}',
    "a long fraction beyond a double": b'{"a":' + b"9" * 400 + b".5}",
    "more digits than Python takes": b'{"a":' + b"9" * 4301 + b"}",
    "a leading zero": b'{"a":01}',
    "no UTF-8": b'{"a":"\xff"}',
    "no UTF-8 in a key": b'{"\xff":1}',
    "a surrogate as UTF-8": b'{"a":"\xed\xa0\x80"}',
    "half a surrogate pair": b'{"a":"\\ud800"}',
    "a control character": b'{"a":"\x1b"}',
    "NUL": b'{"a":1}\0',
    "too deep": b'{"a":' + DEEPEST + b"}",
    "too deep, rows beside": b'{"rows":[{},{},{}],"a":' + DEEPEST + b"}",
    "much too deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "too many keys": b"{" + b",".join(b'"%d":0' % n for n in range(KEYS_MAX + 1)) + b"}",
}


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD.keys())
def test_an_object_is_taken(data: bytes) -> None:
    assert object_problem(data) is None
    assert value_problem(data) is None


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_is_no_object_is_refused_in_one_line(data: bytes) -> None:
    problem = object_problem(data)
    assert problem is not None
    assert problem.isprintable()
    assert len(problem) < 200


@pytest.mark.parametrize("data", [b"1", b"null", b'"a"', b"[]", b'[1,{"a":"b"}]', b"-1.5"])
def test_any_value_is_taken_where_it_may_be_one(data: bytes) -> None:
    assert value_problem(data) is None
    assert object_problem(data) is not None


@pytest.mark.parametrize("data", [b"1 2", b"", b'[{"a":1,"a":2}]', b'"\xff"', b"NaN", b"[1,\n2]"])
def test_a_value_is_held_to_the_same_rules(data: bytes) -> None:
    assert value_problem(data) is not None


def test_the_key_that_stands_twice_is_named() -> None:
    assert "'clicks'" in str(object_problem(b'{"clicks":1,"x":{},"clicks":2}'))
