import pytest

from walle_stream.testing.chaos.outcome import difference

WANTED = {"features": [b"a", b"b", b"c"], "state": [b"1"]}


def test_the_same_bytes_are_no_difference():
    assert difference({"features": (b"a", b"b", b"c"), "state": [b"1"]}, WANTED) is None


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([b"a", b"c"], "1 of 3 lines missing, 0 doubled, 0 others; line 2 is c instead of b"),
        ([b"a", b"b", b"b", b"c"], "0 of 3 lines missing, 1 doubled, 0 others; line 3 is b"),
        ([b"a", b"b", b"c", b"x"], "0 doubled, 1 others; line 4 is too much: x"),
        ([b"a", b"b"], "1 of 3 lines missing, 0 doubled, 0 others; line 3 is missing: c"),
        ([b"b", b"a", b"c"], "0 of 3 lines missing, 0 doubled, 0 others; line 1 is b"),
        ([], "3 of 3 lines missing"),
    ],
)
def test_what_differs_is_counted_and_shown(lines, text):
    assert text in difference({"features": lines, "state": [b"1"]}, WANTED)


def test_what_is_not_there_at_all_differs():
    assert difference({"features": WANTED["features"]}, WANTED).startswith("state: 1 of 1")
