import argparse
import json

import pytest

from walle_deploy.cli.dry_run import add
from walle_stream.errors import RefNotFoundError, SpecFileError

RELEASE = """\
apiVersion: walle/v1
kind: Release
metadata: {name: r1}
spec:
  task: shop/ipv
  version: v2
  policy:
    app: shop
    exclude: [{devices: [d-9]}]
    any: [{os: android}, {region: cn-*}]
"""
POPULATION = """\
{"device": "d-1", "app": "shop", "os": "android", "tasks": {"shop/ipv": "v2"}}
{"device": "d-2", "app": "shop", "os": "ios", "user": "u-2"}
{"device": "d-3", "app": "shop", "os": "ios"}

{"device": "d-4", "app": "read", "os": "android"}
{"device": "d-9", "app": "shop", "os": "android"}
"""
SERVICE = """\
apiVersion: walle/v1
kind: ReleaseService
metadata: {name: s}
spec: {attributes: {file: users.csv}}
"""


@pytest.fixture
def ran(tmp_path, capsys):
    (tmp_path / "release.yaml").write_text(RELEASE)
    (tmp_path / "population.jsonl").write_text(POPULATION)
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "users.csv").write_text("user,region\nu-2,cn-east\n")

    def run(*arguments):
        parser = argparse.ArgumentParser()
        add(parser.add_subparsers())
        given = [str(tmp_path / "release.yaml"), "--population", str(tmp_path / "population.jsonl")]
        service = ["--service", str(tmp_path / "service.yaml")]
        options = parser.parse_args(["dry-run", *given, *service, *arguments])
        assert options.run(options) == 0
        return capsys.readouterr().out

    return run


def test_it_says_who_would_get_a_release_and_why(ran):
    assert ran().splitlines() == [
        "2 of 5 devices would get it, 1 have it",
        "yes         2  all conditions are met: d-1, d-2",
        "no          1  any(os is android, region is cn-*) is not known of it: d-3",
        "no          1  app is shop is not met: d-4",
        "no          1  exclude(device is d-9) is not met: d-9",
    ]
    found = json.loads(ran("--json"))
    assert (found["devices"], found["would_get"], found["has_it"]) == (5, 2, 1)
    assert found["groups"][0]["examples"] == ["d-1", "d-2"]


def test_it_explains_each_condition_for_one_device(ran):
    lines = ran("--device", "d-3").splitlines()
    assert lines[0] == "device d-3 would not get it"
    assert "not known any" in lines[3]
    assert "no        os is android (has ios)" in lines[5]
    found = json.loads(ran("--device", "d-1", "--json"))
    assert (found["would_get"], found["inner"][1]["found"]) == (True, "shop")
    with pytest.raises(RefNotFoundError, match="no device 'd-x'"):
        ran("--device", "d-x")


def test_at_a_gray_step_a_share_is_in(ran):
    assert ran("--percent", "0").startswith("0 of 5")
    assert ran("--percent", "100", "--salt", "x").startswith("2 of 5")
    with pytest.raises(SystemExit):
        ran("--percent", "101")


def test_a_line_that_is_no_profile_is_named(ran, tmp_path):
    (tmp_path / "population.jsonl").write_text('{"device": "d"}\n{"device": 3}\n')
    with pytest.raises(SpecFileError, match=r"population\.jsonl:2:1: no profile of a device"):
        ran()
