import gzip
import io
import json
import os
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.forks import Forks
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.cli.__main__ import main

ROOT = Path(__file__).resolve().parents[2]

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")


@pytest.fixture(scope="session")
def sample() -> Path:
    return ROOT / "configs/samples/kuairand_feed.csv.gz"


def feed_rows():
    """Return the sample's header and 3,004 rows, between them devices that cannot be one."""
    rows = gzip.decompress((ROOT / "configs/samples/kuairand_feed.csv.gz").read_bytes())
    header, *lines = rows.splitlines()[:3_001]
    rest = lines[1_000].partition(b",")[2]
    for place, device in enumerate((b"", b"x" * 10_240, b"\xff\xfe", b"\x00")):
        lines.insert(1_000 + 300 * place, device + b"," + rest)
    return header, lines


def report_of(done):
    """Return the report of ``walle run --json``, or of another command with ``--json``."""
    return json.loads(done.stdout.splitlines()[-1])


# they read, and change nothing of their process: starting one takes longer than their work
_QUERIES = frozenset({"dead-letters", "features", "ledger", "schema", "state", "status", "task"})


@pytest.fixture(scope="session")
def forked(tmp_path_factory):
    """Run ``python -m MODULE ARGUMENTS`` in a process of its own, and return what it said."""
    forks, folder = Forks(), tmp_path_factory.mktemp("forks")

    def run(module, *arguments, environ=None, cwd=".", given="", timeout=120):
        environ = {**os.environ, **(environ or {})}
        return forks.run(folder, module, [*map(str, arguments)], environ, cwd, given, timeout)

    yield run
    forks.close()


@pytest.fixture(scope="session")
def walle(forked):
    """Run the command line: ``run`` in a process of its own, what only reads in this one."""

    def run(*arguments, check=True, cwd=".", **options):
        if {*arguments[:1]} & _QUERIES and not options:
            done = _run_here([*map(str, arguments)], cwd)
        else:
            done = forked("walle_stream.cli", *arguments, cwd=cwd, **options)
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


def _run_here(arguments, cwd):
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    stdout = os.dup(1)  # what the command does when its output fails is not for pytest's
    try:
        with redirect_stdout(out), redirect_stderr(errors), chdir(cwd):
            code = main(arguments)
    except SystemExit as error:
        code = error.code
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    texts = []
    for each in (out, errors):
        each.flush()
        texts.append(each.buffer.getvalue().decode())
    return subprocess.CompletedProcess(arguments, code, *texts)


class Job:
    """Runs the main job under one of the runtimes; hosts are 2 under Ray unless told."""

    def __init__(self, walle, ray_environ=None):
        self.walle, self.ray_environ = walle, ray_environ

    def __call__(self, data_dir, feed, *overrides, hosts=None, limit=None):
        """Run, and return the report; the local runtime in this process: it starts at once."""
        overrides = [f"spec.source.path={feed}", *(f"spec.{each}" for each in overrides)]
        file = ROOT / "configs/ipv.yaml"
        if self.ray_environ is None:
            options = RunOptions(data_dir, hosts or 1, limit)
            return json.loads(LocalRun(Assembly.load(file, overrides), options).run().to_json())
        command = ["run", file, "--runtime", "ray", "--hosts", hosts or 2, "--json"]
        command += [] if limit is None else ["--limit", limit]
        for override in overrides:
            command += ["--set", override]
        done = self.walle(*command, "--data-dir", data_dir, environ=self.ray_environ, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=["local", pytest.param("ray", marks=[needs_ray, pytest.mark.slow])])
def job(request, walle):
    """The main job under every runtime; under Ray in the long form only."""
    return Job(walle, _ray_environ(request))


@pytest.fixture(params=["local", pytest.param("ray", marks=[needs_ray, pytest.mark.full])])
def quick_job(request, walle):
    """The main job under every runtime, always."""
    return Job(walle, _ray_environ(request))


def _ray_environ(request):
    return request.getfixturevalue("ray_environ") if request.param == "ray" else None


@pytest.fixture
def run_ipv(walle, sample):
    """Run the IPV pipeline over a feed and return its report."""

    def run(data_dir, *arguments, feed=sample):
        done = walle(
            "run",
            ROOT / "configs/ipv.yaml",
            "--set",
            f"spec.source.path={feed}",
            "--data-dir",
            data_dir,
            "--json",
            *arguments,
        )
        return json.loads(done.stdout.splitlines()[-1])

    return run
