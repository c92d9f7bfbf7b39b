"""A process that is started again, and what of its ends is allowed."""

import os
import sys
import time

import pytest

from walle_stream.testing.chaos.kafka.members import Member

ENDLESS = "import signal; print('up', flush=True); signal.pause()"


@pytest.fixture
def member(tmp_path):
    made = []

    def make(*programs):
        left = list(programs)

        def command(is_bounded):
            program = left.pop(0) if len(left) > 1 else left[0]
            return [sys.executable, "-c", program.replace("BOUNDED", str(is_bounded))]

        made.append(Member("host-0", command, os.environ, tmp_path, {12: "no broker"}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def until(member, condition):
    deadline = time.monotonic() + 60
    while not condition():
        member.tick()
        assert time.monotonic() < deadline, member.said()


def test_one_that_was_killed_is_started_again(member):
    one = member(f"import os; print(os.getpid(), flush=True); {ENDLESS}")
    one.start()
    until(one, lambda: one.said().endswith("up"))
    first = one.said()
    assert one.kill()
    until(one, lambda: one.said().endswith("up") and one.said() != first)
    assert one.is_alive
    assert (one.failure, one.ends) == ("", {})


def test_allowed_ends_are_counted_and_others_are_findings(member):
    one = member("raise SystemExit(12)", "print('oh', flush=True); raise SystemExit(3)")
    one.start()
    until(one, lambda: one.failure)
    assert one.ends == {12: 1}
    assert one.failure == "host-0 ended with 3: oh"
    assert not one.is_wanted


def test_an_end_of_a_live_input_is_a_finding(member):
    one = member("")
    one.start()
    until(one, lambda: one.failure)
    assert one.failure.startswith("host-0 ended with 0")


def test_a_bounded_one_may_end(member):
    one = member("print(BOUNDED)")
    one.start(is_bounded=True)
    until(one, lambda: not one.is_wanted)
    assert (one.said(), one.failure) == ("True", "")


def test_one_that_was_told_to_end_stays_so(member):
    one = member(ENDLESS)
    one.start()
    until(one, lambda: one.said() == "up")
    one.stop()
    one.terminate()
    one.terminate()  # by now it may handle the first one
    one.go_on()
    until(one, lambda: not one.is_alive)
    one.tick()
    assert not one.is_alive
    assert not one.failure


def test_its_phase_is_what_it_wrote(member):
    program = (
        "import os; open(os.environ['WALLE_PHASE_FILE'].replace('%p', str(os.getpid())), 'wb')"
    )
    one = member(f"{program}.write(bytes([3])); {ENDLESS}")
    assert one.phase() == ""
    one.start()
    until(one, one.phase)
    assert one.phase() == "read.batch"
