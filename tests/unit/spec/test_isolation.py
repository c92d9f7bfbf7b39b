"""``spec.isolation``: a policy, or a policy with what confines its processes."""

from typing import get_args

import pytest

from walle_stream.errors import SpecFileError
from walle_stream.spec.isolation import POLICIES, IsolationSpec, Measure, Policy
from walle_stream.spec.loader import ISOLATION, load_pipeline, load_task
from walle_stream.vm.process.guard import MEASURES
from walle_stream.vm.process.settings import ProcessSettings

TASK = """\
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: "1"
  script: visit.py
  triggers: [{sequence: [click]}]
  isolation: ISOLATION
"""
LONG = """
    policy: process
    memory: 64MiB
    cpu: 1.5s
    require: [syscall_filter, own_network]
"""


@pytest.fixture
def isolation(tmp_path):
    def load(text: str) -> IsolationSpec:
        (tmp_path / "visit.yaml").write_text(TASK.replace("ISOLATION", text))
        task = load_task(tmp_path / "visit.yaml")
        assert task is not None
        return task.spec.isolation

    return load


def test_the_names_are_those_of_the_vm():
    assert get_args(Measure.__value__) == MEASURES
    assert get_args(Policy.__value__) == POLICIES
    assert IsolationSpec().memory_bytes == ProcessSettings().memory_bytes


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_stands_for_itself(isolation, policy):
    assert isolation(policy) == isolation(f"{{policy: {policy}}}") == IsolationSpec(policy=policy)


def test_the_long_form(isolation):
    found = isolation(LONG)
    assert (found.policy, found.memory_bytes, found.cpu_ms) == ("process", 64 * 2**20, 1_500)
    assert found.require == ("syscall_filter", "own_network")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("proces", (8, 14), "did you mean 'process'?"),
        ("5", (8, 14), "found 5"),
        ("{policy: proces}", (8, 23), "did you mean 'process'?"),
        ("{policy: process, memory: 1MiB}", (8, 40), "at least 67108864 bytes"),
        ("{policy: process, memorry: 1GiB}", (8, 32), "did you mean 'memory'?"),
        ("{policy: process, cpu: 1}", (8, 37), "expected a duration"),
        ("{policy: process, require: [own_user, seccomp]}", (8, 52), "found 'seccomp'"),
        ("{policy: device, cpu: 1s}", (8, 36), "is for policy: process"),
        ("{require: [own_user]}", (8, 24), "is for policy: process; shared has none"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(isolation, text, place, words):
    with pytest.raises(SpecFileError) as caught:
        isolation(text)
    assert (caught.value.line, caught.value.column) == place
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_a_pipeline_knows_where_each_task_asks_for_it(tmp_path):
    (tmp_path / "visit.yaml").write_text(TASK.replace("ISOLATION", LONG))
    (tmp_path / "p.yaml").write_text(
        "apiVersion: walle/v1\nkind: Pipeline\nmetadata: {name: p}\n"
        "spec: {source: {connector: c}, tasks: [file: visit.yaml],\n"
        "  runtime: {minimumIsolation: device}}\n"
    )
    loaded = load_pipeline(tmp_path / "p.yaml", connector_models={"c": IsolationSpec})
    assert loaded.places["visit", ISOLATION] == f"{tmp_path / 'visit.yaml'}:12:14"
    assert loaded.pipeline.spec.runtime.minimum_isolation == "device"
