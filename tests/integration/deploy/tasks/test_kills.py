"""Commands that are killed in the middle: the same command again ends where one alone would."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

DRIVER = Path(__file__).with_name("kill_driver.py")
SUBJECTS = {
    "rebase": ["mine", "theirs", "Begin the task shop/ipv"],
    "tag": ["Begin the task shop/ipv"],
    "init": ["Begin the task shop/ipv"],
    "checkout": ["theirs", "Begin the task shop/ipv"],
}


def test_a_command_that_was_killed_anywhere_is_gone_on_with(tmp_path):
    command = [sys.executable, DRIVER, tmp_path, *SUBJECTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    killed = [each for each in facts if each["killed"]]
    assert {name: sum(each["case"] == name for each in killed) >= 3 for name in SUBJECTS} == (
        dict.fromkeys(SUBJECTS, True)
    )
    assert [each for each in killed if each["again"]] == []
    inside = [each for each in killed if each["when"] == "inside"]
    assert len(inside) == 2
    # git's own locks were left behind where the group's git was killed
    assert all(each["locks"] for each in inside)
    for each in facts:
        state = each["state"]
        tags = ["refs/tags/ipv/v1 tag"] if each["case"] == "tag" else []
        assert state["refs"] == ["refs/heads/ipv commit", *tags], each
        assert (state["subjects"], state["tags"]) == (SUBJECTS[each["case"]], tags), each
        assert (state["same"], state["clean"], state["left"]) == (True, True, []), each
    tips = {(each["case"], each["state"]["tip"]) for each in facts}
    assert len(tips) == len(SUBJECTS)
