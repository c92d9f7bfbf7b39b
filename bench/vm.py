"""VMs against GIL threads, processes and InterpreterPoolExecutor: make bench-vm.

The parts measure throughput and task time by class of task, overhead of a call, creation, memory
and leaks. Others measure the effect of a runaway on its neighbours, the cost of the guards, and
the time to a package's first result. Each part runs in a process of its own; progress on stderr,
tables on stdout, all rounds in JSON.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from console import keep, show
from vm_parts.bars import CONTROL_MIN, bars
from vm_parts.classes import measure_classes
from vm_parts.contenders import ROOT
from vm_parts.guards import measure_guards
from vm_parts.interference import measure_interference
from vm_parts.measuring import Settings, say
from vm_parts.memory import measure_memory
from vm_parts.overhead import measure_overhead
from vm_parts.packages import measure_packages
from vm_parts.tables import tables

PARTS: Final[dict[str, Callable[[Settings], dict[str, Any]]]] = {
    "classes": measure_classes,
    "overhead": measure_overhead,
    "memory": measure_memory,
    "interference": measure_interference,
    "guards": measure_guards,
    "packages": measure_packages,
}


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    settings = _settings(options)
    if options.out is not None:  # a part, in its own process
        options.out.write_text(json.dumps(PARTS[options.parts[0]](settings)))
        return 0
    start = time.monotonic()
    result: dict[str, Any] = {
        "bench": "vm",
        "quick": options.quick,
        "settings": settings._asdict(),
        "seed": settings.seed,
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "system": platform.system(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("walle-stream", "msgspec")},
        },
        "date": time.strftime("%Y-%m-%d"),
    }
    for part in options.parts:
        result[part] = _measured_apart(part)
    result["wall_s"] = round(time.monotonic() - start, 1)
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and not options.quick and options.parts == list(PARTS):
        name = ".".join(map(str, sys.version_info[:2]))
        path = ROOT / f"bench/results/vm-{name}.json"
    keep(result, path, "a quick look, or not all parts")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="rounds per class that must count (7)")
    parser.add_argument("--max-rounds", type=int, default=40, help="rounds per class at most")
    parser.add_argument("--tasks", type=int, default=2, help="tasks at once")
    parser.add_argument("--runs", type=int, help="runs of the leak test (1,000,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="seconds, any control counts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="bench/results/vm-VERSION.json")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tasks < 2:  # noqa: PLR2004 - the control compares many with one
        parser.error("--tasks must be at least 2")
    return options


def _settings(options: argparse.Namespace) -> Settings:
    quick = options.quick
    return Settings(
        seed=options.seed,
        tasks=options.tasks,
        rounds=options.rounds or (1 if quick else 7),
        max_rounds=options.max_rounds,
        target_s=0.1 if quick else 1.0,
        runs=options.runs or (2_000 if quick else 1_000_000),
        repeats=3 if quick else 7,
        stops=5 if quick else 50,
        vms=5 if quick else 20,
        cycles=5 if quick else 100,
        # two processes are as fast as N cores let them be: N * 0.95 for N tasks
        control_min=0.0 if quick else CONTROL_MIN * options.tasks / 2,
        batches=1 if quick else 4,
    )


def _measured_apart(part: str) -> dict[str, Any]:
    # what one part leaves in memory, threads and settings must not reach the next
    say(f"--- {part}")
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        out = Path(folder) / "part.json"
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            # this checkout's own packages, whatever else is installed
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(
                os.pathsep
            ),
        }
        subprocess.run([*command, "--parts", part, "--out", str(out)], check=True, env=environment)
        return dict(json.loads(out.read_text()))


if __name__ == "__main__":
    raise SystemExit(main())
