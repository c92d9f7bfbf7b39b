import pytest

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.alarms import AlarmBoard
from walle_deploy.monitoring.definition import AlarmRule
from walle_stream.errors import StoreError
from walle_stream.wire.buckets import bucket_of

KEY = ("shop/ipv", "v2")


def health(**fields):
    def found(task, version):
        return VersionHealth(task=task, version=version, **fields)

    return found


def look(board, now, seen=0, active=True, **fields):
    messages = board.look({KEY: seen}, health(**fields), now, lambda *_: active)
    return [(each.rule, each.state) for each in messages]


BAD = {"runs": 1_000, "devices": 50, "failures": 30}
FINE = {"runs": 1_000, "devices": 50, "failures": 10}


def test_an_alarm_is_told_once_and_once_that_it_is_over():
    board = AlarmBoard([AlarmRule(name="failing", failure_rate=0.02)])
    assert look(board, 1, **FINE) == []
    [begun] = board.look({KEY: 0}, health(**BAD), 2)
    assert (begun.state, begun.value, begun.since_ms) == ("firing", 0.03, 2)
    assert begun.text == (
        "shop/ipv@v2: failing firing: failureRate 0.03, limit 0.02, 1000 runs on 50 devices"
    )
    assert look(board, 3, **BAD) == []
    [over] = board.look({KEY: 0}, health(**FINE), 4)
    assert (over.state, over.alarm, over.since_ms) == ("resolved", begun.alarm, 2)
    assert over.id != begun.id
    assert look(board, 5, **FINE) == []
    [next_one] = board.look({KEY: 0}, health(**BAD), 6)
    assert next_one.alarm != begun.alarm


def test_few_runs_or_devices_say_nothing_and_none_end_an_alarm():
    rule = AlarmRule(name="r", failing_devices=0.1, min_runs=10, min_devices=5)
    board = AlarmBoard([rule])
    assert look(board, 1, runs=9, devices=9, failing_devices=9) == []
    assert look(board, 1, runs=90, devices=4, failing_devices=4) == []
    assert look(board, 2, runs=90, devices=5, failing_devices=4) == [("r", "firing")]
    assert look(board, 3) == [("r", "resolved")]


def test_each_measure_has_its_limit():
    rules = [
        AlarmRule(name="crash", crashing_devices=0.01),
        AlarmRule(name="slow", latency_p99="40ms"),
        AlarmRule(name="other", failure_rate=0, tasks="live/*"),
    ]
    fine = {"runs": 1_000, "devices": 100, "crashing_devices": 1}
    fast = {bucket_of(30_000): 1_000}
    assert look(AlarmBoard(rules), 1, latency_us=fast, **fine) == []
    slow = {bucket_of(30_000): 980, bucket_of(90_000): 20}
    found = look(AlarmBoard(rules), 1, latency_us=slow, **{**BAD, "crashing_devices": 1})
    assert found == [("crash", "firing"), ("slow", "firing")]


def test_silence_is_of_versions_that_should_be_heard():
    board = AlarmBoard([AlarmRule(name="silent", silence="60s")])
    assert look(board, 60_000) == []
    assert look(board, 60_001, active=False) == []
    assert look(board, 60_001) == [("silent", "firing")]
    assert look(board, 60_002, seen=60_002) == [("silent", "resolved")]


def test_an_alarm_whose_rule_went_is_over():
    one = AlarmBoard([AlarmRule(name="failing", failure_rate=0.02)])
    [begun] = one.look({KEY: 0}, health(**BAD), 2)
    for rules in ([], [AlarmRule(name="failing", failure_rate=0, tasks="live/*")]):
        other = AlarmBoard(rules)
        other.firing = dict(one.firing)
        [over] = other.look({KEY: 0}, health(**BAD), 3)
        assert (over.state, over.alarm, over.since_ms) == ("resolved", begun.alarm, 2)
        assert over.text == "shop/ipv@v2: failing resolved: no rule of this name applies any more"
        assert look(other, 4, **BAD) == []


def test_a_look_that_fails_finds_nothing():
    board = AlarmBoard([AlarmRule(name="failing", failure_rate=0.02)])

    def breaks(task, version):
        if version == "v3":
            raise StoreError("not there")
        return health(**BAD)(task, version)

    with pytest.raises(StoreError):
        board.look({KEY: 0, ("shop/ipv", "v3"): 0}, breaks, 1)
    assert look(board, 2, **BAD) == [("failing", "firing")]
