import pytest

from walle_deploy.policy.loading import PolicyDefinition
from walle_deploy.policy.model import Policy
from walle_stream.errors import SpecFileError
from walle_stream.spec.single import load_single

GOOD = """\
apiVersion: walle/v1
kind: Policy
metadata: {name: some}
spec:
  app: shop
  any:
  - appVersion: ">=7.1 <8"
    not: {os: [ios]}
  - devices: {file: ids.txt}
  - devices: [a, b]
  - memory: ">= 4GiB"
  percent: 20
"""


def test_a_policy_is_loaded_and_comes_back_from_its_plain_form(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    policy = load_single(file, PolicyDefinition).spec
    assert Policy.of(policy.plain) == policy
    assert policy.plain["any"][1] == {"devices": {"file": str(tmp_path / "ids.txt")}}
    assert Policy.of({}) == Policy()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "[a, b]",
            "[a, 3]",
            "10:18: spec.any[2].devices[1]: expected text, found 3: put it in quotes",
        ),
        (">= 4GiB", "4 foo", "11:13: spec.any[3].memory: expected a range of sizes"),
        ("not:", "nott:", "8:5: spec.any[0].nott: unknown key 'nott', did you mean 'not'?"),
        ("percent: 20", "percent: 120", "12:12: spec.percent: expected at most 100, found 120"),
        ("percent: 20", "percent: true", "12:12: spec.percent: expected a number, found true"),
        ("percent: 20", "salt: x", "salt: needs percent"),
        ("{file: ids.txt}", "{fil: ids.txt}", "9:15: spec.any[1].devices"),
        (
            ">=7.1 <8",
            ">=7.x",
            "7:17: spec.any[0].appVersion: expected a version like 7.1.0, found '7.x'",
        ),
        ("app: shop", "app: []", "5:8: spec.app: expected at least 1 in the list, found 0"),
        ("kind: Policy", "kind: Polcy", "2:7: kind: unknown kind 'Polcy', did you mean 'Policy'?"),
        ("apiVersion: walle/v1\n", "", "1:1: apiVersion: missing key 'apiVersion'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, right, wrong, message):
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD.replace(right, wrong))
    with pytest.raises(SpecFileError) as caught:
        load_single(file, PolicyDefinition)
    assert f"{file}:" in str(caught.value)
    assert message in str(caught.value)


def test_several_definitions_and_lists_are_refused(tmp_path):
    file = tmp_path / "x.yaml"
    for text, message in (
        (GOOD + "---\n" + GOOD, "expected one Policy, found 2"),
        ("- 1\n", "expected a mapping"),
    ):
        file.write_text(text)
        with pytest.raises(SpecFileError, match=message):
            load_single(file, PolicyDefinition)


def test_a_stored_policy_that_is_none_or_too_deep_is_refused():
    with pytest.raises(SpecFileError, match="policy: app"):
        Policy.of({"app": 3})
    deep: dict = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(SpecFileError, match="more than 20 levels"):
        Policy.of(deep)
    while deep:  # without the recursion of its deallocation
        deep = deep["not"]
