"""Where other workers are, and whether that can be right."""

import pytest
from yarl import URL

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from walle_connectors.faust.neighbours import address_problems, other_addresses

MINE = URL("http://10.0.0.1:6066")


def test_others_are_all_but_me():
    found = ["http://10.0.0.1:6066", "http://10.0.0.2:6066", "http://10.0.0.1:6067/"]
    assert list(map(str, other_addresses(MINE, found))) == [
        "http://10.0.0.1:6067/",
        "http://10.0.0.2:6066",
    ]


def test_two_workers_of_one_address_are_noticed():
    # of one address the last is known
    [problem] = address_problems(MINE, {str(MINE): {"t": [2, 3]}}, "t", 4)
    assert "at the same address (all: http://10.0.0.1:6066)" in problem
    assert "--advertise HOST:PORT" in problem


@pytest.mark.parametrize("other", ["http://127.0.0.1:1", "http://localhost:1", "http://0.0.0.0:1"])
def test_an_address_that_only_its_machine_reaches_is_noticed(other):
    found = {str(MINE): {"t": [0, 1]}, other: {"t": [2, 3]}}
    [problem] = address_problems(MINE, found, "t", 4)
    assert f"a worker says that it is at {other}" in problem


@pytest.mark.parametrize(
    ("mine", "other"),
    [("http://127.0.0.1:1", "http://127.0.0.1:2"), (str(MINE), "http://10.0.0.2:6066")],
)
def test_workers_of_one_machine_and_of_two_are_well(mine, other):
    found = {mine: {"t": [0, 1]}, other: {"t": [2, 3], "u": [0]}}
    assert address_problems(URL(mine), found, "t", 4) == []
