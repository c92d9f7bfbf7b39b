"""What every test gets: a quiet environment, and a look at what is left at the end."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes is the machine's, never a test's matter
settings.register_profile("walle", deadline=None)
settings.load_profile("walle")

# the machinery of chaos runs and the user's own settings must not reach the tests
for _name in [name for name in os.environ if name.startswith("WALLE_")]:
    del os.environ[_name]


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running():
    before = set(threading.enumerate())
    interpreters = _interpreters()
    yield
    threads = [each for each in threading.enumerate() if each not in before and not each.daemon]
    assert not threads, f"a test left threads: {threads}"
    assert _interpreters() <= interpreters, "a test left isolated interpreters"


def _interpreters():
    import _interpreters as module  # noqa: PLC0415 - the one name on both Pythons

    return {number for number, *_ in module.list_all()}


@pytest.fixture(scope="session")
def ray_environ(tmp_path_factory):
    """Environment of commands that join a cluster made by ``ray start``."""
    # a socket's path has at most 107 bytes: pytest's are too deep
    folder = Path(tempfile.mkdtemp(prefix="walle-test-"))
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    log = tmp_path_factory.mktemp("ray") / "log"
    ray = Path(sys.executable).with_name("ray")
    command = [ray, "start", "--head", "--block", "--port=0", "--num-cpus=4"]
    command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    command += ["--object-store-memory=150000000", f"--temp-dir={folder}", "--disable-usage-stats"]
    with log.open("wb") as opened:
        cluster = subprocess.Popen(command, env=environ, stdout=opened, stderr=opened)
    try:
        environ["RAY_ADDRESS"] = _address(cluster, folder, log)
        yield environ
    finally:
        cluster.terminate()
        cluster.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _address(cluster, folder, log):
    deadline_s = time.monotonic() + 60.0
    path = folder / "ray_current_cluster"
    while not path.exists() or "Ray runtime started" not in log.read_text():
        assert cluster.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.05)
    return path.read_text().strip()
