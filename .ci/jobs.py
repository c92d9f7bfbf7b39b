"""Run the tests in jobs, four at a time, since tests mostly wait for processes that they start.

jobs.py essential PYTHON OTHER ...   the tests of `make test`, on PYTHON alone
jobs.py rest PYTHON OTHER ...        the further tests of `make test-all`: the mark `full` on the
                                     newer Python; tests that depend on the Python on OTHER

Further arguments go to pytest. The marks (pyproject.toml, tests/conftest.py) select the tests. The
tables only distribute them: a job runs the tests under its paths, except under more exact paths of
other jobs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

_INTEGRATION: Final = "tests/integration"
_KAFKA: Final = f"{_INTEGRATION}/kafka"
_CLOUD: Final = ("baseline", "chaos", "cloud", "cloud_faults", "cloud_tls", "faust_records")
_BROKEN: Final = (
    "copies",
    "dead_letters",
    "growing",
    "ray_pipeline",
    "source_group",
    "source_kills",
    "source_pipeline",
    "tunnel_broker",
    "tunnel_down",
)
_RUNS: Final = (
    "cloud_sinks",
    "cluster",
    "cluster_runs",
    "device",
    "messages",
    "services",
    "sink",
    "source_replay",
    "tunnel_faults",
    "tunnel_pipeline",
)
_RAY: Final = ("ray", "ray_bad_input", "ray_engine", "ray_engine_runs")

# the longest first
_ESSENTIAL: Final = {
    "units": ("tests/unit", "tests/conformance"),
    "vm": ("tests/unit/vm",),
    "integration": (_INTEGRATION,),
    "deploy": (f"{_INTEGRATION}/deploy",),
    "power": ("tests/power",),
    "others": ("tests",),
}
_REST: Final = {
    "kafka-cloud": tuple(f"{_KAFKA}/test_{name}.py" for name in _CLOUD),
    "kafka": (_KAFKA,),
    "kafka-runs": tuple(f"{_KAFKA}/test_{name}.py" for name in _RUNS),
    "ray": (*(f"{_INTEGRATION}/test_{name}.py" for name in _RAY), "tests/chaos/test_ray_kills.py"),
    "kafka-faults": tuple(f"{_KAFKA}/test_{name}.py" for name in _BROKEN),
    "kills": ("tests/chaos",),
    "deploy": (f"{_INTEGRATION}/deploy",),
    "units": ("tests/unit", "tests/conformance"),
    "others": ("tests",),
}
_OTHER_PYTHON: Final = {"other, units": ("tests/unit",), "other": ("tests",)}

_DEPENDS_ON_PYTHON: Final = "vm or actors or chaos or commands"
_NEEDED: Final = ("docker", "java", "nginx", "initdb")
_WORKERS: Final = 4
_SILENT_S: Final = 900.0
_TELL_S: Final = 15.0
_NO_TESTS: Final = 5
_PERCENT: Final = re.compile(r"\[ *(\d+)%\]")


class Job(NamedTuple):
    """A run of pytest."""

    name: str
    python: str
    marks: str
    paths: tuple[str, ...]
    ignored: tuple[str, ...]
    log: Path


def _shared_out(
    table: dict[str, tuple[str, ...]], python: str, marks: str, folder: Path
) -> list[Job]:
    every = [path for paths in table.values() for path in paths]
    return [
        Job(
            name,
            python,
            f"({marks}) and not slow",
            paths,
            tuple(each for each in every if any(each.startswith(f"{path}/") for path in paths)),
            folder / name.replace(", ", "-"),
        )
        for name, paths in table.items()
    ]


def _version(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, said.split()))


def _jobs(part: str, python: str, other: str, folder: Path) -> list[Job]:
    if part == "essential":
        return _shared_out(_ESSENTIAL, python, "not full", folder)
    if not Path(other).exists():
        return _shared_out(_REST, python, "full", folder)
    newer, marks = python, _DEPENDS_ON_PYTHON
    if _version(other) > _version(python):
        newer, marks = other, f"({marks}) and not full"  # tests with the mark run on it anyway
    jobs = _shared_out(_REST, newer, "full", folder)
    return [*jobs[:2], *_shared_out(_OTHER_PYTHON, other, marks, folder), *jobs[2:]]


def _run(job: Job, arguments: list[str]) -> bool:
    ignored = [f"--ignore={each}" for each in job.ignored]
    command = [job.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", job.marks]
    command += [*job.paths, *ignored, "--durations=10", "--durations-min=2"]
    command += ["-o", "faulthandler_timeout=600", *arguments]
    began = time.monotonic()
    with job.log.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while (code := _waited(process)) is None:
            # a busy machine slows every test, but only a test that hangs prints nothing
            if time.time() - job.log.stat().st_mtime > _SILENT_S:
                process.kill()
                log.write(f"\nkilled: no test ended in {_SILENT_S:.0f} s\n")
    said = job.log.read_text(errors="replace")
    took = f"{time.monotonic() - began:.0f} s"
    if code not in {0, _NO_TESTS}:  # a job without tests (-k) is no failure
        print(f"== {job.name}: FAILED after {took}\n{said}", flush=True)
        return False
    lines = [line for line in said.splitlines() if " not run: " in line]
    print("\n   ".join([f"== {job.name}: {took}, {said.splitlines()[-1]}", *lines]), flush=True)
    return True


def _waited(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_TELL_S)
    except subprocess.TimeoutExpired:
        return None


def _tell(jobs: list[Job], is_over: threading.Event) -> None:
    began = time.monotonic()
    while not is_over.wait(_TELL_S):
        words = []
        for job in jobs:
            found = _PERCENT.findall(
                job.log.read_text(errors="replace") if job.log.exists() else ""
            )
            words += [f"{job.name} {found[-1]} %"] if found else []
        print(
            f"{time.monotonic() - began:5.0f} s: {', '.join(words) or 'collecting tests'}",
            flush=True,
        )


def main() -> int:
    """Run all jobs and return the exit code."""
    part, python, other, *arguments = sys.argv[1:]
    folders = map(str, Path("/usr/lib/postgresql").glob("*/bin"))
    programs = os.pathsep.join((os.environ["PATH"], "/usr/sbin", *folders))
    where = "its tests are in `make test-all`" if part == "essential" else "some tests need it"
    for name in _NEEDED:
        if shutil.which(name, path=programs) is None:
            print(f"no {name} on this machine: {where}", flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_WORKERS + 1) as pool:
        jobs, is_over = _jobs(part, python, other, Path(folder)), threading.Event()
        pool.submit(_tell, jobs, is_over)
        ends = [pool.submit(_run, job, arguments) for job in jobs]
        are_well = [end.result() for end in ends]
        is_over.set()
    return 0 if all(are_well) else 1


if __name__ == "__main__":
    raise SystemExit(main())
