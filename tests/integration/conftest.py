import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def feed() -> Path:
    """The whole KuaiRand feed where the workspace has it, else the shipped sample."""
    whole = ROOT.parent / "shared" / "data" / "kuairand" / "feed.csv.gz"
    return whole if whole.exists() else ROOT / "configs/samples/kuairand_feed.csv.gz"


@pytest.fixture(scope="session")
def sample() -> Path:
    return ROOT / "configs/samples/kuairand_feed.csv.gz"


@pytest.fixture
def walle():
    """Run the command line in a process of its own."""

    def run(*arguments, check=True, **options):
        environ = {**os.environ, **options.pop("environ", {})}
        done = subprocess.run(
            [sys.executable, "-m", "walle_stream.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environ,
            timeout=options.pop("timeout", 120),
            check=False,
            **options,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


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
