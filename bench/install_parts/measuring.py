"""Versions that are installed while the shop's events come, and what came of each event."""

import json
import threading
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from latency_parts.paced import CONNECTOR, Schedule
from pipeline_parts.shop import DEFINITION, overrides

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.programs.installed import NewVersion
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.queries.query import features_lines
from walle_stream.clock import monotonic_ms

TASK: Final = "shop-ipv"
_EVERY_S: Final = 0.15
_LOOK_S: Final = 0.005


def make_packages(count: int) -> list[bytes]:
    """Build versions of the shop's task, each with bytes of its own."""
    task = find_task(DEFINITION)
    made = []
    for number in range(count):
        config = {**task.spec.config, "made": number}
        spec = task.spec.model_copy(update={"version": f"v{number}", "config": config})
        made.append(package_task(task.model_copy(update={"spec": spec})))
    return made


def measure_installs(
    source: Path,
    data_dir: Path,
    events_per_s: float,
    events: int,
    devices: Sequence[str],
    packages: Sequence[bytes],
) -> dict[str, Any]:
    """Run the shop in this process, which is not to be used for anything else.

    Args:
        source: JSON Lines of a shop.
        data_dir: A new one.
        events_per_s: How many arrive; 0 for as many as are taken.
        events: How many of the file.
        devices: On these, in turns on one and on all.
        packages: One behind the other, from the beginning again; none: nothing is installed.
    """
    CONNECTOR.schedule = Schedule(events_per_s)
    given = {"connector": "latency_parts.paced:CONNECTOR", "path": str(source)}
    assembly = Assembly.load(DEFINITION, overrides(given))
    assembly.warm_vms = 1  # as walle fleet has it: one is ready for the next version
    run = LocalRun(assembly, RunOptions(data_dir, hosts=1, limit=events))
    done = threading.Event()
    taken: dict[str, list[float]] = {"one": [], "all": []}

    def install() -> None:
        while not run.is_ready and not done.wait(_LOOK_S):
            pass
        number = 0
        while packages and not done.wait(_EVERY_S):
            kind = ("one", "all")[number % 2]
            on = devices if kind == "all" else [devices[number % len(devices)]]
            version = NewVersion(packages[number % len(packages)])
            began_ms = monotonic_ms()
            refused = run.installation.install({device: {TASK: version} for device in on})
            if refused:
                if done.wait(1.0):
                    return  # the source has ended meanwhile, and the hosts have gone
                raise RuntimeError(f"refused: {refused}")
            taken[kind].append(monotonic_ms() - began_ms)
            number += 1

    with _Joined(threading.Thread(target=_unless_over(install, done)), done):
        started = time.perf_counter()
        report = run.run()
        wall_s = time.perf_counter() - started
    found = [json.loads(line) for line in features_lines(data_dir)]
    versions: dict[str, int] = {}
    for row in found:
        versions[row["task_version"]] = versions.get(row["task_version"], 0) + 1
    return {
        "events": report.run_events,
        "events_per_s": round(report.run_events / wall_s, 1),
        "features": len(found),
        "failed_runs": report.counters.task_failures,
        "versions": len(versions),
        # each has the whole timeline of its page, and counts that its device's state keeps
        "features_digests": sorted(
            blake2b(json.dumps(row["feature"], sort_keys=True).encode(), digest_size=8).hexdigest()
            for row in found
        ),
        "handled": report.counters.events,
        "exit_to_commit_p99_ms": report.exit_to_commit_ms.p99,
        "install_ms": {kind: [round(ms, 2) for ms in each] for kind, each in taken.items()},
    }


class _Joined:
    def __init__(self, thread: threading.Thread, done: threading.Event) -> None:
        self._thread, self._done = thread, done

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _unless_over(install: Any, done: threading.Event) -> Any:
    # the last one may come when the run has ended, a moment before this thread is told so
    def run() -> None:
        try:
            install()
        except Exception:
            if not done.wait(1.0):
                raise

    return run
