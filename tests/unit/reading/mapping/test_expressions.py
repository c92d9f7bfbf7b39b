import pytest

from walle_stream.reading.mapping.expressions import FUNCTIONS, ExpressionError, parse_expression

ALLOWED = [
    "user_id",
    "'tab:' + tab",
    "a + b - c * d / e // f % 7",
    "-a if not b else +c",
    "a == 1 and b != 'x' or c < d <= 3",
    "kind in ('carts', 'orders') and kind not in ['x']",
    "a is None or b is not None",
    "get('user-id', 0) + get('x')",
    "record['key'][0][-1]",
    "flags(like=is_like == 1, follow=is_follow == 1)",
    "round(a, 2) + round(b)",
    "split(tags, '|')",
    "  \n a +\n 1 ",
]

REFUSED = {
    "": "empty",
    "a.b": "position 1: an attribute",
    "a +": "position",
    "x = 1": "position",
    "open('f')": "position 1: a call of 'open' is not allowed",
    "().__class__": "attribute",
    "int.mro()": "a call of 'int.mro' is not allowed",
    "[x for x in y]": "ListComp is not allowed",
    "lambda: 1": "lambda is not allowed",
    "f'{a}'": "an f-string",
    "(a := 1)": ":= (use let)",
    "a ** b": "this operator is not allowed",
    "a << 9": "this operator is not allowed",
    "~a": "this operator is not allowed",
    "a @ b": "this operator is not allowed",
    "[1, 2]": "a list is not allowed",
    "{'a': 1}": "a dictionary is not allowed",
    "a[b]": "an index must be a literal",
    "a[1:2]": "an index must be a literal",
    "a[-'x']": "an index must be a literal",
    "a[True]": "an index must be a literal",
    "a in (b, 1)": "may only have literals",
    "a is 1": "position",
    "a is b": "'is' may only be followed by None",
    "b'x'": "literal b'x' is not allowed",
    "1j": "literal 1j is not allowed",
    "...": "literal ... is not allowed",
    "1e999": "is not allowed",
    "99999999999999999999": "is not allowed",
    "'\\ud800'": "is not allowed",
    "'\\d'": "position",
    "int()": "int() takes 1 values, not 0",
    "int(x, base=2)": "only flags() takes name=condition",
    "min(a)": "min() takes 2 to 64 values",
    "flags()": "flags() takes 1 to 64 name=condition",
    "flags(a)": "flags() takes 0 values",
    "flags(**a)": "not **",
    "get(a)": "get() takes a column's name, or a value and a name in it",
    "get('a', 1, 2)": "get('column') takes a default and no more",
    "get(a, b)": "an index must be a literal number or text",
    "round(a, b)": "digits as a literal",
    "round(a, 99)": "at most 15 digits",
    "round(a, -999999999)": "digits as a literal",
    "max(*a)": "takes 2 to 64",
    "max(*a, 1)": "* is not allowed",
    "await a": "position",
    "a\0b": "",
    "-" * 900 + "1": "nested too deeply",
    "(" * 400 + "1" + ")" * 400: "",
    "x" * 1_001: "1001 characters",
}


@pytest.mark.parametrize("text", ALLOWED)
def test_expression_of_the_language_is_accepted(text: str) -> None:
    parse_expression(text)


@pytest.mark.parametrize(("text", "reason"), REFUSED.items(), ids=lambda text: text[:20])
def test_anything_else_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_position_counts_from_the_beginning_of_the_text() -> None:
    with pytest.raises(ExpressionError, match="position 9"):
        parse_expression("   1 +  b.c")


def test_message_names_the_functions_that_exist() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression("eval(x)")
    assert all(name in str(caught.value) for name in FUNCTIONS)
