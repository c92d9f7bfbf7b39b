import pytest

from walle_deploy.monitoring.definition import AlarmRule, Alarms
from walle_stream.errors import SpecFileError
from walle_stream.spec.single import load_single

DIGITS = "1234567890123456"
TEXT = """\
apiVersion: walle/v1
kind: Alarms
metadata: {name: shop}
spec:
  every: 5s
  webhook:
    url: https://hooks.example/walle
    secret: ${HOOK_SECRET}
  rules:
    - {name: failing, tasks: shop/*, failureRate: 0.02}
    - {name: slow, latencyP99: 200ms, minRuns: 10}
    - {name: silent, silence: 10m}
"""


def load(tmp_path, text, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", DIGITS)
    file = tmp_path / "alarms.yaml"
    file.write_text(text)
    return load_single(file, Alarms).spec


def test_rules_are_read_and_a_secret_of_digits_is_text(tmp_path, monkeypatch):
    spec = load(tmp_path, TEXT, monkeypatch)
    assert list(spec.rules) == [
        AlarmRule(name="failing", failure_rate=0.02, tasks="shop/*"),
        AlarmRule(name="slow", latency_p99="200ms", min_runs=10),
        AlarmRule(name="silent", silence="10m"),
    ]
    assert spec.webhook.secret == DIGITS
    assert [(each.measure, each.above) for each in spec.rules] == [
        ("failureRate", 0.02),
        ("latencyP99", 200),
        ("silence", 600_000),
    ]
    assert (spec.webhook.timeout, spec.every) == (5_000, 5_000)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("failureRate: 0.02", "failureRate: 2", ":10:51: spec.rules[0].failureRate"),
        ("failureRate: 0.02", "failurRate: 0.02", "did you mean 'failureRate'"),
        (", silence: 10m", "", "found none of them"),
        ("silence: 10m", "silence: 10m, failureRate: 0", "found failureRate and silence"),
        ("silent", "slow", "the name 'slow' stands here twice"),
        ("https:", "ftp:", ":7:10: spec.webhook.url"),
        ("hooks.example", "hooks.example:98z", ":7:10: spec.webhook.url: expected https://HOST"),
        ("kind: Alarms", "kind: Alarm", ":2:7: kind: unknown kind 'Alarm', did you mean 'Alarms'"),
        ("walle/v1", "walle/v2", "unknown apiVersion"),
        ("${HOOK_SECRET}", "short", "at least 16 characters"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, monkeypatch, old, new, said):
    with pytest.raises(SpecFileError) as error:
        load(tmp_path, TEXT.replace(old, new), monkeypatch)
    assert said in str(error.value)
    assert DIGITS not in str(error.value)


def test_a_file_of_something_else_is_refused(tmp_path, monkeypatch):
    for text in ("", "- a\n", TEXT + "---\n" + TEXT):
        with pytest.raises(SpecFileError):
            load(tmp_path, text, monkeypatch)
