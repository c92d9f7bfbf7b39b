import pytest

from walle_deploy.policy.model import Policy
from walle_deploy.release.model import Release
from walle_deploy.release.state import ReleaseState
from walle_deploy.release.steps import Hours, Step
from walle_stream.errors import SpecFileError
from walle_stream.spec.single import load_single

HEAD = "apiVersion: walle/v1\nkind: Release\nmetadata: {name: ipv-v2}\nspec:\n"
TASK = HEAD + "  task: shop/ipv\n  version: v2\n"


def load(tmp_path, text):
    file = tmp_path / "release.yaml"
    file.write_text(text)
    return load_single(file, Release, {})


def test_a_short_release_has_the_usual_steps(tmp_path):
    spec = load(tmp_path, TASK).spec
    assert [step.percent for step in spec.gray] == [1, 5, 20, 50, 100]
    assert (spec.beta, spec.simulation, spec.policy) == (None, None, Policy())
    assert spec.gates.error_rate == 0.05


def test_a_whole_release_is_read_and_comes_back_from_its_json(tmp_path):
    text = TASK + (
        "  priority: 3\n"
        "  policy: {os: android}\n"
        "  simulation: {kinds: kinds.yaml, events: day.jsonl}\n"
        "  beta: {devices: [a, b], minDuration: 10m, minDevices: 2}\n"
        "  gray:\n"
        "    - {percent: 2.5, notBefore: 2026-11-23T09:00:00+01:00}\n"
        "    - {percent: 100, hours: {from: '09:00', to: '17:00', days: [mon], timeZone: Europe/Oslo}}\n"
        "  full: {minDuration: 1d}\n"
        "  gates: {errorRate: 0.01, failures: {tolerated: 0.01}, latency: {enabled: false}}\n"
        "  onStop: pause\n"
    )
    release = load(tmp_path, text)
    spec = release.spec
    assert spec.simulation.kinds == tmp_path / "kinds.yaml"
    assert (spec.beta.min_duration, spec.full.min_duration) == (600_000, 86_400_000)
    definition = release.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert ReleaseState(definition=definition).release == release


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "  task: shop/ipv\n", ":4:1: spec.version: missing key 'version'"),
        (TASK + "  gary: []\n", ":7:3: spec.gary: unknown key 'gary', did you mean 'gray'"),
        (
            TASK + "  gray: [{percent: 5}, {percent: 5}]\n",
            r":7:\d+: spec.gray: each step must have a larger percent",
        ),
        (
            TASK + "  gray: [{percent: 0}]\n",
            r":7:20: spec.gray\[0\].percent: expected at least 1e-06",
        ),
        (
            TASK + "  gray: [{percent: 1e-300}]\n",
            r":7:20: spec.gray\[0\].percent: expected at least",
        ),
        (TASK + "  holdOut: 1e-300\n", r"holdOut: expected 0, or at least 1e-06"),
        (TASK + "  beta: {devices: []}\n", r":7:19: spec.beta.devices: expected at least 1"),
        (TASK + "  full: {minDuration: 5}\n", ":7:23: spec.full.minDuration: expected a duration"),
        (TASK + "  full: {notBefore: soon}\n", ":7:21: spec.full.notBefore: expected a time like"),
        (TASK + "  full: {notBefore: 2026-11-23T09:00:00}\n", "has no time zone"),
        (
            TASK + "  full: {hours: {from: '09:00', to: 18:00}}\n",
            "expected text, found 1080: put it in quotes",
        ),
        (TASK + "  full: {hours: {from: '9', to: '18:00'}}\n", "expected a time like '09:00'"),
        (
            TASK + "  full: {hours: {from: '09:00', to: '18:00', timeZone: Oslo/X}}\n",
            "there is no time zone",
        ),
        (HEAD + "  task: Shop\n  version: v2\n", ":5:9: spec.task: 'Shop@v2' names no task"),
        (HEAD + "  task: shop/ipv@v1\n  version: v2\n", "spec.task"),
        (TASK + "  gates: {errorRate: 0.5}\n", ":7:22: spec.gates.errorRate: expected at most 0.2"),
        (TASK.replace("Release", "Task"), ":2:7: kind: unknown kind 'Task'"),
        ("[]", ":1:1: expected a mapping"),
        (TASK + "---\n" + TASK, "expected one Release, found 2 documents"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(SpecFileError, match=message):
        load(tmp_path, text)


def at(day, clock):
    return Step(not_before=f"2026-11-{day}T{clock}:00Z")


def ms(text):
    from datetime import datetime  # noqa: PLC0415 - here alone

    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_a_step_begins_in_its_hours_alone():
    hours = Hours.model_validate(
        {"from": "09:00", "to": "17:00", "days": ["mon", "tue"], "timeZone": "Europe/Oslo"}
    )
    inside = ("2026-11-23T08:00:00Z", "2026-11-24T15:59:00Z")
    outside = ("2026-11-23T07:59:00Z", "2026-11-23T16:00:00Z", "2026-11-25T10:00:00Z")
    assert [hours.contain(ms(each)) for each in inside + outside] == [True] * 2 + [False] * 3


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin():
    hours = Hours.model_validate({"from": "22:00", "to": "04:00", "days": ["sun"]})
    found = [
        hours.contain(ms(f"2026-11-{each}:00Z"))
        for each in ("22T23:00", "23T03:59", "23T04:00", "22T03:00", "23T23:00")
    ]
    assert found == [True, True, False, False, False]


def test_a_step_does_not_begin_before_its_time():
    step = at(23, "09:00")
    assert [step.may_begin(ms(f"2026-11-23T{each}:00Z")) for each in ("08:59", "09:00")] == [
        False,
        True,
    ]
