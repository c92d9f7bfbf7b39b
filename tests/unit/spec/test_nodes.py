"""YAML that is refused, and values that come out of what is not."""

from pathlib import Path

import pytest

from walle_stream.errors import SpecFileError
from walle_stream.spec.nodes import FILE_MAX_BYTES, read_documents

BIG = 2**64


@pytest.fixture
def read(tmp_path):
    def read_text(text, **environ):
        file = tmp_path / "f.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_documents(file, environ)

    return read_text


@pytest.fixture
def wrong(read, tmp_path):
    def line_of(text):
        with pytest.raises(SpecFileError) as caught:
            read(text)
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value).replace(f"{tmp_path}/", "")

    return line_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "f.yaml:1:6: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c", "f.yaml:1:5: mapping values are not allowed here"),
        ("a:\n\t- b", "f.yaml:2:1: found character '\\t' that cannot start any token"),
        ("a: *b", "f.yaml:1:4: found undefined alias 'b'"),
        ("a: @b", "f.yaml:1:4: found character '@' that cannot start any token"),
        ("a: x\0y", "f.yaml:1:5: the character #x0000 is not allowed"),
        ("a: b\nc: d\x01", "f.yaml:2:5: the character #x0001 is not allowed"),
        ("a: 1\nb: 2\na: 3", "f.yaml:3:1: a: the key 'a' stands here twice"),
        ("x: {a: 1, a: 2}", "f.yaml:1:11: x.a: the key 'a' stands here twice"),
        ("b: &b {}\na:\n  <<: *b", "f.yaml:3:3: a['<<']: merge keys are not supported"),
        ("? [a]\n: b", "f.yaml:1:3: ['?']: keys must be plain text"),
        ("a: !!python/object:os.system x", "f.yaml:1:4: a: the tag !!python/object:os.system is not allowed here"),
        ("a: !foo {b: c}", "f.yaml:1:4: a: the tag !foo is not allowed here"),
        ("a: !!set {b}", "f.yaml:1:4: a: the tag !!set is not allowed here"),
        ("a: !!binary eA==", "f.yaml:1:4: a: the tag !!binary is not allowed here"),
        ("a: !!int x", "f.yaml:1:4: a: it cannot be read as a YAML int"),
        ("a: .inf", "f.yaml:1:4: a: inf is not a JSON number"),
        ("a: [1, .nan]", "f.yaml:1:8: a[1]: nan is not a JSON number"),
        (f"a: {BIG}", "f.yaml:1:4: a: the number does not fit into 64 bits"),
        ("a: 0x" + "f" * 9000, "f.yaml:1:4: a: the number does not fit into 64 bits"),
        ("a: " + "9" * 9000, "f.yaml:1:4: a: it cannot be read as a YAML int"),
        ('a: "\\ud800"', "f.yaml:1:4: a: the text is not valid Unicode"),
        ("a: &a [*a]", "f.yaml:1:4: a[0][0]"),
        ("a: " + "[" * 5000, "f.yaml:1:63: the document is too large"),
        ("a: [" + "1," * 60_000 + "]", "f.yaml:1:99999: the document is too large"),
        ("", "f.yaml:1:1: the file defines nothing"),
        ("---\n---\n# nothing\n", "f.yaml:1:1: the file defines nothing"),
        (b"a: b\nxyz: \xff", "f.yaml:2:6: not UTF-8"),
        ("a: b".encode("utf-16"), "f.yaml:1:1: not UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_definition_is_one_line(wrong, text, expected):
    assert wrong(text).startswith(expected)


def test_a_bomb_of_aliases_is_refused_at_once(wrong):
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(40)]
    assert "the document is too large" in wrong("\n".join(bomb))


def test_an_alias_stands_where_it_is_used(read):
    document = read("a: &x {b: 1}\nc: *x\n")[0]
    assert document.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert document.value["a"] is not document.value["c"]


def test_a_file_at_the_bound_is_read_and_one_byte_more_is_not(read, wrong):
    text = "a: b\n#"
    assert read(text + "x" * (FILE_MAX_BYTES - len(text)))[0].value == {"a": "b"}
    assert (
        wrong(text + "x" * (FILE_MAX_BYTES - len(text) + 1)) == "f.yaml: larger than 1048576 bytes"
    )


def test_an_endless_file_is_not_read_to_its_end():
    with pytest.raises(SpecFileError, match="/dev/zero: larger than"):
        read_documents(Path("/dev/zero"), {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("null", None),
        ("~", None),
        ("true", True),
        ("-7", -7),
        ("1.5", 1.5),
        ("'5'", "5"),
        ("!!str 5", "5"),
        (str(BIG - 1), BIG - 1),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_values_are_those_of_json(read, text, value):
    found = read(f"k: {text}")[0].value["k"]
    assert (found, type(found)) == (value, type(value))


def test_a_byte_order_mark_moves_no_column(wrong):
    assert wrong(b"\xef\xbb\xbfa: [1").startswith("f.yaml:1:6: ")


def test_keys_are_text_whatever_they_look_like(read):
    assert read("{1: a, on: b, null: c}")[0].value == {"1": "a", "on": "b", "null": "c"}


def test_empty_documents_are_left_out(read):
    assert [each.value for each in read("---\na: 1\n---\n---\nb: 2\n---\n")] == [{"a": 1}, {"b": 2}]
