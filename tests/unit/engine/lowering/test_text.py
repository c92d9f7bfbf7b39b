import io
import re

import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering.patterns import translated
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import DTypeError, LoweringError, ShapeError


def text(*values):
    return np.array(values, object)


def test_strings_are_joined_with_spreading(run_node):
    (made,) = run_node("StringConcat", [text("a", "b").reshape(2, 1), text("x", "y", "z")])
    assert made.tolist() == [["ax", "ay", "az"], ["bx", "by", "bz"]]


@pytest.mark.parametrize("operator", ["StringConcat", "StringSplit", "RegexFullMatch"])
def test_numbers_are_no_strings(run_node, operator):
    with pytest.raises(DTypeError):
        run_node(operator, [np.ones(2), np.ones(2)], pattern=b"a")


@pytest.mark.parametrize(
    ("attributes", "parts", "counts"),
    [
        ({"delimiter": b","}, [["a", "", "b"], ["c d", "", ""]], [3, 1]),
        ({"delimiter": b",", "maxsplit": 1}, [["a", ",b"], ["c d", ""]], [2, 1]),
        ({}, [["a,,b", ""], ["c", "d"]], [1, 2]),
        ({"delimiter": b""}, [["a,,b", ""], ["c", "d"]], [1, 2]),
    ],
)
def test_strings_are_split(run_node, attributes, parts, counts):
    made, numbers = run_node("StringSplit", [text("a,,b", "c d")], outputs=2, **attributes)
    assert made.tolist() == parts
    assert numbers.tolist() == counts
    assert numbers.dtype == np.int64


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_strings_are_split_into_nothing(run_node, shape):
    made, counts = run_node("StringSplit", [np.empty(shape, object)], outputs=2)
    assert (made.shape, counts.shape) == ((*shape, 0), shape)


def test_what_reads_the_parts_of_strings_is_run_after_them():
    nodes = (
        Node("StringSplit", ("x",), ("parts", ""), {}, "split", "", 20),
        Node("Shape", ("parts",), ("shape",), {}, "shape", "", 20),
        Node("StringConcat", ("parts", "tail"), ("y",), {}, "join", "", 20),
    )
    given = {"x": text("a b c", "d"), "tail": text("!")}
    graph = Graph("g", dict.fromkeys(given), {"shape": None, "y": None}, nodes)
    shape, made = GraphRunner(graph, {}, Interpreter()).run(given)
    assert shape.tolist() == [2, 3]
    assert made.tolist() == [["a!", "b!", "c!"], ["d!", "!", "!"]]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, ["Mon", "tue", "MON"]),
        ({"case_change_action": b"UPPER"}, ["MON", "TUE", "MON"]),
        ({"stopwords": (b"mon",)}, ["tue"]),
        ({"stopwords": (b"mon",), "is_case_sensitive": 1}, ["Mon", "tue", "MON"]),
        ({"stopwords": (b"Mon", b"tue", b"mon")}, [""]),
        ({"stopwords": (b"tue",), "case_change_action": b"LOWER"}, ["mon", "mon"]),
    ],
)
@pytest.mark.parametrize("lead", [(), (1,)])
def test_strings_are_normalised(run_node, attributes, expected, lead):
    x = text("Mon", "tue", "MON").reshape(*lead, 3)
    (made,) = run_node("StringNormalizer", [x], **attributes)
    assert made.shape == (*lead, len(expected))
    assert made.reshape(-1).tolist() == expected


def test_no_strings_are_normalised_to_an_empty_one(run_node):
    assert run_node("StringNormalizer", [np.empty((1, 0), object)])[0].tolist() == [[""]]


@pytest.mark.parametrize(
    ("x", "attributes", "error"),
    [
        (text("a", "b").reshape(2, 1), {}, ShapeError),
        (text("a"), {"case_change_action": b"TITLE"}, LoweringError),
        (text("a"), {"stopwords": (1,)}, LoweringError),
    ],
)
def test_wrong_normalisers_are_refused(run_node, x, attributes, error):
    with pytest.raises(error):
        run_node("StringNormalizer", [x], **attributes)


def test_a_pattern_is_matched_as_a_whole(run_node):
    x = text("www.google.com", "www.google.com.", "").reshape(3, 1)
    (made,) = run_node("RegexFullMatch", [x], pattern=rb"www\.[\w.-]+\bcom")
    assert made.tolist() == [[True], [False], [False]]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"\d+", "12", "٣"),
        (r"\w\s\W\D\S", "a -xé", "é -xé"),
        (r"(?i)ab|cd", "CD", "CE"),
        (r"a(?i)b|c", "aB", "AB"),
        (r"(a(?i)b|c)d", "Cd", "CD"),
        (r"(?i:a)b", "Ab", "AB"),
        (r"(?i)a(?-i)b", "Ab", "AB"),
        (r"(?i)[^a]", "b", "A"),
        (r"[[:alpha:]_]+\z", "ab_", "a1"),
        (r"[[:^digit:]]", "a", "1"),
        (r"\Qa.b\E+", "a.bb", "axb"),
        (r"\Qa.b", "a.b", "axb"),
        (r"\x{1F600}\x41", "\U0001f600A", "A"),
        (r"\101\07", "A\x07", "101"),
        (r"\pN+\p{Lu}\P{Lu}", "٣Éé", "٣éÉ"),
        (r"\p{^Lu}[^\pL]", "a1", "A1"),
        (r"[\D]", "x", "1"),
        (r"[a\-z]", "-", "b"),
        (r"[]a]+", "]a", "b"),
        (r"[^]a]", "b", "]"),
        (r"a{2,3}?", "aaa", "a"),
        (r"a{2}", "aa", "a"),
        (r"a{,2}", "a{,2}", "a"),
        (r"a{2,}", "aaaa", "a"),
        (r".", "a", "\n"),
        (r"(?s).", "\n", "ab"),
        (r"(?m)a$\n^b", "a\nb", "ab"),
        (r"a$", "a", "a\n"),
        (r"^a", "a", "b"),
        (r"\Aa", "a", "b"),
        (r"(?P<n>x)(?<m>y)", "xy", "x"),
        (r"(?U)a+", "aaa", ""),
        (r"(|a)*b", "aab", "ba"),
        (r"(?:^)*a", "a", "b"),
        (r"\bfoo\b", "foo", "fo"),
        (r"[^\x00-\x{10FFFF}]|a", "a", "b"),
        ("", "", "a"),
    ],
)
def test_a_pattern_means_what_it_means_in_re2(pattern, yes, no):
    made = translated(pattern)
    assert re.fullmatch(made, yes)
    assert not re.fullmatch(made, no)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\1", "(?=a)", "(?!a)", "(?<=a)", "a**", "a++", "*a", "(a", "a)", "[a", "[", r"\p{Greek}",
        r"\p", "[z-a]", "a{1001}", "a{3,2}", "\\", "(?P<n", "(?#x)", "(?>a)", r"\Z", "[[:foo:]]",
        r"\x{110000}", "(?)", "(?", "a|*", "(((",
    ],
)  # fmt: skip
def test_what_re2_has_not_is_refused(pattern):
    with pytest.raises(LoweringError, match="pattern"):
        translated(pattern)


def test_a_missing_pattern_is_refused(run_node):
    with pytest.raises(LoweringError):
        run_node("RegexFullMatch", [text("a")])


RULES = "walle_stream.engine.lowering.text"


def decoded(stream, **attributes):
    node = Node("ImageDecoder", ("x",), ("y",), attributes, version=20)
    graph = Graph("test", {"x": None}, {"y": None}, (node,))
    return GraphRunner(graph, {}, Interpreter()).run({"x": stream})[0]


def test_without_pillow_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(f"{RULES}.can_decode", lambda: False)
    with pytest.raises(LoweringError, match="pip install pillow"):
        decoded(np.zeros(3, np.uint8))


def test_other_streams_and_formats_are_refused():
    with pytest.raises(DTypeError, match="uint8, not int64"):
        decoded(np.zeros(3, np.int64))
    with pytest.raises(ShapeError, match="one axis, not 2"):
        decoded(np.zeros((3, 1), np.uint8))
    with pytest.raises(LoweringError, match="'pixel_format' is 'CMYK'"):
        decoded(np.zeros(3, np.uint8), pixel_format=b"CMYK")


@pytest.mark.parametrize("pixels", ["RGB", "BGR", "Grayscale"])
def test_a_lossless_image_is_decoded_as_it_was(pixels):
    image = pytest.importorskip("PIL.Image")
    x = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 9
    file = io.BytesIO()
    image.fromarray(x).save(file, "PNG")
    made = decoded(np.frombuffer(file.getvalue(), np.uint8), pixel_format=pixels.encode())
    if pixels == "Grayscale":
        assert made.shape == (2, 3, 1)
    else:
        assert np.array_equal(made, x if pixels == "RGB" else x[..., ::-1])


@pytest.mark.parametrize("stream", [b"", b"no image", b"\x89PNG\r\n\x1a\n\x00\x00", b"GIF89a"])
def test_what_is_no_image_has_no_pixels(stream):
    pytest.importorskip("PIL.Image")
    assert decoded(np.frombuffer(stream, np.uint8)).shape == (0, 0, 3)
