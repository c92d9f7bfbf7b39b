"""The simulated shop's job: speed of ``walle run`` over JSON Lines, the plain loop beside it.

One partition, because one core works: with more, commits are smaller. A commit is
made at least every ``COMMIT_MS``; the report's commits and wall time show it.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from peers_parts.contenders import CONTENDERS
from peers_parts.environments import Environment
from peers_parts.running import run_contender

ROOT: Final = Path(__file__).resolve().parents[2]
DEFINITION: Final = ROOT / "configs/shop.yaml"
COMMIT_MS: Final = 25
_LATENCY_TARGET_MS: Final = COMMIT_MS - 5  # what is learned of a batch is not always so


def _environment() -> dict[str, str]:
    paths = (ROOT, ROOT / "connectors", ROOT / "deploy", ROOT / "bench")
    return {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }


_OF_ONE_CORE: Final = (
    "spec.runtime.partitions=1",
    f"spec.runtime.latencyTarget={_LATENCY_TARGET_MS}ms",
)


def overrides(source: Mapping[str, str], runtime: Iterable[str] = _OF_ONE_CORE) -> list[str]:
    """Return what a bench changes of the shop's definition, as for ``--set``.

    Args:
        source: The keys under ``spec.source``.
        runtime: What else.
    """
    keys = ", ".join(f"{name}: {value}" for name, value in source.items())
    return [f"spec.source={{{keys}}}", *runtime]


def _arguments(source: Path, data_dir: Path, runtime: Iterable[str] = _OF_ONE_CORE) -> list[str]:
    keys = {"connector": "events", "path": str(source)}
    given = [f"--set={each}" for each in overrides(keys, runtime)]
    return [str(DEFINITION), "--data-dir", str(data_dir), *given]


def partition(source: Path, runtime: Iterable[str]) -> tuple[Path, float]:
    """Cut events of a shop by partition, return the parts' folder and the command's seconds.

    Args:
        source: Events of a shop.
        runtime: Changes of the definition's other settings.
    """
    given = overrides({"connector": "events", "path": str(source)}, runtime)
    command = [sys.executable, "-m", "walle_stream.cli", "partition", str(DEFINITION), "--json"]
    before_s = time.perf_counter()
    done = subprocess.run(
        [*command, *(f"--set={each}" for each in given)],
        check=True,
        capture_output=True,
        text=True,
        env=_environment(),
    )
    return Path(json.loads(done.stdout)["folder"]), time.perf_counter() - before_s


def run_walle(
    source: Path, runtime: Iterable[str] = _OF_ONE_CORE, arguments: Iterable[str] = ()
) -> dict[str, Any]:
    """Run the job in a fresh data directory, return its report.

    Args:
        source: Events of a shop.
        runtime: Changes of the definition's other settings.
        arguments: More of the command line.
    """
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    try:
        command = [sys.executable, "-m", "walle_stream.cli", "run", "--json"]
        done = subprocess.run(
            [*command, *_arguments(source, folder / "d", runtime), *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=_environment(),
        )
    finally:
        shutil.rmtree(folder)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def run_plain(source: Path, events: int) -> float:
    """Run the plain loop over the same file, return events per CPU-second."""
    [plain] = [each for each in CONTENDERS if each.name == "plain"]
    here = Environment(Path(sys.executable), "", "")
    cost, _ = run_contender(plain, here, source)
    return events / cost.cpu_s


def measure_stages(source: Path) -> dict[str, float]:
    """Run the job once with its stages timed; microseconds per event."""
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    try:
        command = [sys.executable, "-m", "pipeline_parts.stages"]
        done = subprocess.run(
            [*command, *_arguments(source, folder / "d")],
            check=True,
            capture_output=True,
            text=True,
            env=_environment(),
        )
    finally:
        shutil.rmtree(folder)
    stages: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["us_per_event"]
    return stages


def summary(reports: list[dict[str, Any]], plain: list[float]) -> dict[str, Any]:
    """Return the medians of some rounds."""
    middle = statistics.median
    speed = middle([each["events_per_cpu_second"] for each in reports])
    loop = middle(plain)
    latencies = [each["exit_to_commit_ms"] for each in reports]
    return {
        "events": reports[0]["events"],
        "features": reports[0]["features"],
        "rounds": len(reports),
        "walle_events_per_cpu_second": round(speed),
        "plain_loop_events_per_cpu_second": round(loop),
        "ratio": round(speed / loop, 3),
        "ms_per_commit": round(middle([1e3 * r["wall_s"] / r["commits"] for r in reports]), 1),
        "exit_to_commit_p50_ms": middle([each["p50"] for each in latencies]),
        "exit_to_commit_p99_ms": middle([each["p99"] for each in latencies]),
    }
