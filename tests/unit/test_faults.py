import re
import subprocess
import sys
from pathlib import Path

import pytest

from walle_stream.faults import CRASH_POINTS, PLATFORM_POINTS, crash_point

ROOT = Path(__file__).resolve().parents[2]
LOOP = """
import sys
from walle_stream.faults import crash_point
for name in sys.argv[1:]:
    crash_point(name)
    print(name, flush=True)
"""


def passed(*points, **environ):
    """Pass the points in a process of its own; what it printed and how it ended."""
    command = [sys.executable, "-c", LOOP, *points]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.stdout.split(), done.returncode


def test_a_point_does_nothing_unless_it_is_armed():
    for name in (*CRASH_POINTS, *PLATFORM_POINTS):
        crash_point(name)
    assert passed("read.batch", "commit.before") == (["read.batch", "commit.before"], 0)


def test_an_armed_point_kills_the_process():
    before = ["read.batch"]
    assert passed("read.batch", "commit.before", WALLE_CRASH="commit.before") == (before, -9)


@pytest.mark.parametrize("time", [1, 2, 3])
def test_the_process_dies_at_the_nth_time(time):
    points = ["read.batch"] * 4
    shown = ["read.batch"] * (time - 1)
    assert passed(*points, WALLE_CRASH=f"read.batch:{time}") == (shown, -9)


def test_another_point_does_not_count():
    points = ["vm.before", "vm.after"]
    assert passed(*points, WALLE_CRASH="vm.before:2") == (points, 0)


def test_the_last_point_passed_is_in_the_phase_file(tmp_path):
    phase = tmp_path / "phase"
    passed("read.batch", "ack.before", WALLE_PHASE_FILE=str(phase))
    assert phase.read_bytes() == bytes([CRASH_POINTS.index("ack.before") + 1])


def test_every_process_may_have_a_phase_file_of_its_own(tmp_path):
    passed("vm.before", WALLE_PHASE_FILE=str(tmp_path / "%p"))
    [phase] = tmp_path.iterdir()
    assert phase.name.isdecimal()
    assert phase.read_bytes() == bytes([CRASH_POINTS.index("vm.before") + 1])


def test_the_phase_outlives_a_kill(tmp_path):
    phase = tmp_path / "phase"
    environ = {"WALLE_PHASE_FILE": str(phase), "WALLE_CRASH": "vm.after"}
    assert passed("vm.before", "vm.after", **environ)[1] == -9
    assert phase.read_bytes() == bytes([CRASH_POINTS.index("vm.after") + 1])


def test_every_point_is_somewhere_in_the_code_and_no_other():
    called = set()
    for folder in ("walle_stream", "connectors", "deploy"):
        for path in (ROOT / folder).rglob("*.py"):
            called |= set(re.findall(r'crash_point\(\s*"([^"]+)"', path.read_text()))
    assert called == {*CRASH_POINTS, *PLATFORM_POINTS}
