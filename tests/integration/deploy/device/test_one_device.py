"""``walle fleet --id``: a real device's process asks a service, and runs what it gets."""

import json
import subprocess
import sys

import pytest

from tests.integration.deploy.device.hostile import SCRIPT, Service, package
from tests.integration.scripted_visits import PIPELINE

pytestmark = [pytest.mark.integration, pytest.mark.vm]

DEADLINE_S = 60


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path)
    made.publish("shop/visits@v1", package("v1"))
    made.push("shop/visits@v1")
    yield made
    made.close()


@pytest.fixture
def command(tmp_path, service):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "visits.py").write_text(SCRIPT)
    (tmp_path / "steps.jsonl").touch()
    (tmp_path / "root.json").write_bytes(service.repository.root())
    return [
        *(sys.executable, "-m", "walle_stream.cli", "fleet", tmp_path / "pipeline.yaml"),
        *("--service", service.url, "--root", tmp_path / "root.json", "--every", "50ms"),
        *("--id", "phone-1", "--data-dir", tmp_path / "d", "--json"),
        *("--app", "shop", "--app-version", "7.1", "--os", "android", "--memory-mb", "4000"),
    ]


def test_a_device_gets_a_version_and_runs_it(tmp_path, service, command):
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as running:
        profile = service.await_profile(lambda each: each.tasks == {"shop/visits": "v1"})
        lines = [
            {"device_id": "phone-1", "id": kind, "kind": kind, "page_id": "shop",
             "page_instance": "1", "event_time_ms": at, "ingest_time_ms": at}
            for kind, at in (("page_enter", 1_000), ("page_exit", 1_500))
        ]  # fmt: skip
        said, errors = running.communicate("".join(f"{json.dumps(e)}\n" for e in lines), DEADLINE_S)
    assert running.returncode == 0, errors
    assert (profile.device, profile.app, profile.app_version) == ("phone-1", "shop", "7.1")
    assert (profile.os, profile.memory_mb) == ("android", 4_000)
    assert profile.interpreter == sys.implementation.cache_tag
    report = json.loads(said.splitlines()[-1])
    assert (report["device_id"], report["features"]) == ("phone-1", 1)
    assert (tmp_path / "d-files" / "devices").is_dir()
    listing = [sys.executable, "-m", "walle_stream.cli", "features", "list", "--data-dir"]
    done = subprocess.run([*listing, tmp_path / "d"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["task_version"] == "v1"
