"""Fixtures of every test: a quiet environment, and a check for leftovers at the end."""

import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes is the machine's, never a test's matter
settings.register_profile("walle", deadline=None)
settings.load_profile("walle")

# settings of chaos runs and of the user must not reach the tests; only the Kafka tests read the
# variables that name their broker
for _name in [name for name in os.environ if name.startswith("WALLE_") and "KAFKA" not in name]:
    del os.environ[_name]

# packages that tests build are trusted by them alone (app/programs/isolation.py)
_state = tempfile.TemporaryDirectory(prefix="walle-state-")
os.environ["XDG_STATE_HOME"] = _state.name

_TESTS = Path(__file__).parent
# What a mark means stands in pyproject.toml. These files have it as a whole; single tests name it.
_MARKS = {
    "full": (
        "chaos/*",
        "conformance/test_onnx_cases.py",
        "conformance/test_selection.py",
        "integration/deploy/files/test_publisher_kills.py",
        "integration/deploy/tasks/test_kills.py",
        "integration/deploy/test_postgres_store.py",
        "integration/deploy/test_release_chaos.py",
        "integration/deploy/test_release_kills.py",
        "integration/kafka/*",
        "integration/test_contained_crashes.py",
        "integration/test_exchange.py",
        "integration/test_ray*",
        "integration/test_scripted_faults.py",
        "integration/test_wheel.py",
        "unit/engine/test_light.py",
        "unit/test_bench_*",
    ),
    "commands": (
        "integration/deploy/tasks/*",
        "integration/deploy/test_walk.py",
        "integration/documentation/*",
        "integration/test_commands.py",
        "integration/test_task_commands.py",
        "unit/cli/*",
        "unit/deploy/cli/*",
    ),
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """Undo what a test set of our loggers: a command that it ran would hide the next ones' lines."""
    names = ("walle_stream", "walle_connectors", "walle_deploy")
    kept = [(log, log.level, log.propagate, log.handlers) for log in map(logging.getLogger, names)]
    try:
        return (yield)
    finally:
        for log, level, propagates, handlers in kept:
            log.setLevel(level)
            log.propagate, log.handlers = propagates, handlers


@pytest.hookimpl(tryfirst=True)  # before those without a mark are left out
def pytest_collection_modifyitems(items):
    for item in items:
        if not item.path.is_relative_to(_TESTS):
            continue
        place = item.path.relative_to(_TESTS).as_posix()
        for mark, patterns in _MARKS.items():
            if any(fnmatch(place, pattern) for pattern in patterns):
                item.add_marker(mark)


def pytest_terminal_summary(terminalreporter):
    reasons = Counter(str(each.longrepr[-1]) for each in terminalreporter.stats.get("skipped", ()))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} not run: {reason.removeprefix('Skipped: ')}")


_EXTRA_MISSING = re.compile(r"the extra `\w+` is|could not import '")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _failed_where_ci_lacks_an_extra((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _failed_where_ci_lacks_an_extra((yield))


def _failed_where_ci_lacks_an_extra(report):
    # CI installs all extras: one that is missing there would leave its tests out unseen
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        if _EXTRA_MISSING.search(str(reason)):
            report.outcome = "failed"
            report.longrepr = f"CI has to run this: {reason}"
    return report


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
def ray_environ():
    """Environment of commands that join a cluster made by ``ray start``."""
    from walle_stream.testing.chaos.ray_cluster import (  # noqa: PLC0415 - few tests need it
        RayCluster,
        make_cluster_folder,
    )

    cluster = RayCluster(make_cluster_folder(), os.environ, cpus=4)
    yield cluster.environ
    cluster.close()


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """Return a real S3 server, whose keys are in the environment."""
    from tests.s3 import ENVIRON, S3Server, find_server  # noqa: PLC0415 - few tests need it

    pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
    program = find_server()
    if program is None:
        pytest.skip("no S3 server (versitygw, or go to build it) on this machine")
    with pytest.MonkeyPatch.context() as environ:
        for name, value in ENVIRON.items():
            environ.setenv(name, value)
        server = S3Server(program, tmp_path_factory.mktemp("s3"))
        yield server
        server.close()


@pytest.fixture(scope="session")
def onnx_cases(tmp_path_factory):
    """Return a file with all cases that ONNX publishes, made by a process of its own."""
    path = tmp_path_factory.mktemp("onnx") / "cases.zip"
    command = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.cases", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path
