"""The files of deploy/ray are what Ray takes."""

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy/ray"
CLUSTERS = ("cluster", "aws", "gcp")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")


def read(name):
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


@needs_ray
@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_s_schema_takes_it(name):
    validator = pytest.importorskip("jsonschema").Draft7Validator  # a part of Ray
    schema = json.loads((files("ray") / "autoscaler/ray-schema.json").read_text())
    assert list(validator(schema).iter_errors(read(name))) == []


@pytest.mark.parametrize("name", CLUSTERS)
def test_nobody_gets_in_without_the_token_and_dead_nodes_are_noticed_soon(name):
    config = read(name)
    assert config["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    for role in ("head", "worker"):
        [start] = [each for each in config[f"{role}_start_ray_commands"] if "ray start" in each]
        assert "RAY_AUTH_MODE=token" in start
        assert "--disable-usage-stats" in start
    assert "RAY_health_check_period_ms=500" in config["head_start_ray_commands"][-1]


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_nodes_of_a_cloud_have_a_head_and_enough_workers(name):
    config = read(name)
    types = config["available_node_types"]
    assert config["head_node_type"] in types
    assert 2 <= types["worker"]["min_workers"] <= types["worker"]["max_workers"]
    assert types["worker"]["max_workers"] <= config["max_workers"]


def test_kuberay_s_cluster_has_the_operator_s_fields():
    cluster = read("kuberay")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert set(spec) == {
        *("rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions"),
        *("headGroupSpec", "workerGroupSpecs"),
    }
    assert set(spec["headGroupSpec"]) == {"rayStartParams", "template"}
    [group] = spec["workerGroupSpecs"]
    assert set(group) == {
        *("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template")
    }
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    pods = [spec["headGroupSpec"], group]
    for pod in pods:
        assert all(isinstance(value, str) for value in pod["rayStartParams"].values())
    [images] = {tuple(c["image"] for c in each["template"]["spec"]["containers"]) for each in pods}
    assert images == ("registry.example.org/walle-node:1",)


@needs_ray
def test_kuberay_s_cluster_names_the_version_that_is_pinned():
    lock = (FOLDER.parents[1] / "requirements.lock").read_text().splitlines()
    assert f"ray=={read('kuberay')['spec']['rayVersion']}" in lock
