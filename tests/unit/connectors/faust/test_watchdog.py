import os
import subprocess
import sys

from walle_connectors.faust.watchdog import Place, StallRule


def test_lag_without_progress_is_noticed_after_the_patience():
    rule = StallRule(1_000)
    assert rule.observe(0, {"p0": Place(5, is_behind=True)}) is None
    assert rule.observe(900, {"p0": Place(5, is_behind=True)}) is None
    assert "1 s with records waiting in p0" in rule.observe(1_000, {"p0": Place(5, is_behind=True)})


def test_progress_begins_the_patience_anew():
    rule = StallRule(1_000)
    for now_ms, done in ((0, 5), (900, 6), (1_800, 7)):
        assert rule.observe(now_ms, {"p0": Place(done, is_behind=True)}) is None
    assert rule.observe(2_900, {"p0": Place(7, is_behind=True)})


def test_without_lag_nothing_has_to_happen():
    rule = StallRule(1_000)
    for now_ms in range(0, 10_000, 500):
        assert rule.observe(now_ms, {"p0": Place(5, is_behind=False)}) is None
    assert rule.observe(10_400, {"p0": Place(5, is_behind=True)}) is None


def test_a_partition_that_was_given_away_is_forgotten():
    rule = StallRule(1_000)
    rule.observe(0, {"p0": Place(5, is_behind=True)})
    rule.observe(500, {})
    assert rule.observe(1_200, {"p0": Place(5, is_behind=True)}) is None


def test_one_partition_that_stands_still_is_enough():
    rule = StallRule(1_000)
    for now_ms in (0, 600, 1_200):
        reason = rule.observe(
            now_ms, {"a": Place(now_ms, is_behind=True), "b": Place(1, is_behind=True)}
        )
    assert reason is not None
    assert "waiting in b" in reason


def test_the_end_is_one_line_and_an_exit_code_of_its_own():
    code = "from walle_connectors.faust.watchdog import end_process; end_process('no progress')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 14
    assert done.stderr == "walle: no progress: the process ends, start it again and it goes on\n"
