"""Speed of ``walle run``, a plain Python loop beside it in the same rounds.

The main job is item page views over the KuaiRand feed. The second job is those of the simulated
shop, with the cost of each stage. It reads 1.1 KB JSON Lines, and the same events packed, whose
payloads are never parsed. A third (``busy``) has the shop's CPU beside busy neighbours, and with 16
partitions against one. A fourth (``hosts``, with Ray alone) has two hosts over a file in parts
against one, in time that passes. Events per CPU-second of all threads and processes, start
included; written as JSON with machine, versions and medians.

Latency at a given rate and memory over very many events have benchmarks of their own,
``latency.py`` and ``growth.py``. The first needs a quiet machine, the second takes minutes.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peers import simulate
from pipeline_parts import busy, hosts, shop

ROOT = Path(__file__).resolve().parent.parent
FEED = ROOT.parent / "shared" / "data" / "kuairand" / "feed.csv.gz"
JOBS = ("feed", "shop", "busy", "hosts")
SAMPLE = ROOT / "configs" / "samples" / "kuairand_feed.csv.gz"


def run_walle(feed: Path, runtime: str = "local") -> dict[str, float]:
    """Run the pipeline with one host in a fresh data directory, return its report."""
    folder = tempfile.mkdtemp(prefix="walle-bench-")
    try:
        command = [sys.executable, "-m", "walle_stream.cli", "run", str(ROOT / "configs/ipv.yaml")]
        command += ["--set", f"spec.source.path={feed}", "--data-dir", folder + "/d", "--json"]
        command += ["--runtime", runtime, "--hosts", "1"]
        before = os.times()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        after = os.times()
    finally:
        shutil.rmtree(folder)
    report = json.loads(done.stdout.splitlines()[-1])
    process_cpu_s = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return {
        "events": report["events"],
        "features": report["features"],
        "events_per_cpu_second": report["events_per_cpu_second"],
        "events_per_process_cpu_second": report["events"] / process_cpu_s,
        "exit_to_commit_p50_ms": report["exit_to_commit_ms"]["p50"],
        "exit_to_commit_p99_ms": report["exit_to_commit_ms"]["p99"],
        "wall_s": report["wall_s"],
    }


def run_plain(feed: Path) -> dict[str, float]:
    """Make the same features in plain Python: no VM, no state on disk, no cloud."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from pathlib import Path;"
        "from naive_ipv import recompute; start = time.process_time();"
        "counts, features = recompute(Path(sys.argv[2]));"
        "print(counts['events'], sum(map(len, features.values())), time.process_time() - start)"
    )
    command = [sys.executable, "-c", code, str(ROOT / "tests/integration"), str(feed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    events, features, cpu_s = done.stdout.split()
    return {
        "events": int(events),
        "features": int(features),
        "events_per_cpu_second": int(events) / float(cpu_s),
    }


def measure_feed(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the main job."""
    ours, plain, ray = [], [], []
    for number in range(1, options.rounds + 1):
        ours.append(run_walle(options.feed))
        plain.append(run_plain(options.feed))
        if find_spec("ray"):
            ray.append(run_walle(options.feed, "ray")["events_per_cpu_second"])
        print(
            f"feed, round {number}: walle {ours[-1]['events_per_cpu_second']:,.0f}, "
            f"under ray {ray[-1] if ray else 0:,.0f}, "
            f"plain loop {plain[-1]['events_per_cpu_second']:,.0f} events per CPU-second",
            flush=True,
        )
    walle = statistics.median(r["events_per_cpu_second"] for r in ours)
    whole = statistics.median(r["events_per_process_cpu_second"] for r in ours)
    loop = statistics.median(r["events_per_cpu_second"] for r in plain)
    print(
        f"feed, median: walle {walle:,.0f} ({whole:,.0f} with the start of the process), ", end=""
    )
    print(f"plain loop {loop:,.0f}, ratio {walle / loop:.2f}")
    under_ray = {}
    if ray:
        # of the driver, the host and the cloud side; Ray's own processes are not in it
        speed = statistics.median(ray)
        print(f"under --runtime ray {speed:,.0f}, {speed / walle:.2f} of the local runtime")
        under_ray = {
            "ray_events_per_cpu_second": round(speed),
            "ray_to_local": round(speed / walle, 3),
        }
    return {
        "feed": options.feed.name,
        "events": ours[0]["events"],
        "features": ours[0]["features"],
        "walle_events_per_cpu_second": round(walle),
        "walle_events_per_process_cpu_second": round(whole),
        "plain_loop_events_per_cpu_second": round(loop),
        "ratio": round(walle / loop, 3),
        **under_ray,
        "exit_to_commit_p50_ms": statistics.median(r["exit_to_commit_p50_ms"] for r in ours),
        "exit_to_commit_p99_ms": statistics.median(r["exit_to_commit_p99_ms"] for r in ours),
    }


def measure_shop(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the simulated shop's job, and its stages."""
    shape = options.seed, options.devices, options.sessions
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        source, packed = Path(folder) / "shop.jsonl", Path(folder) / "shop.wev"
        size = simulate(source, *shape)
        packed_size = simulate(packed, *shape, form="packed")
        ours: list[dict[str, Any]] = []
        ours_packed: list[dict[str, Any]] = []
        plain: list[float] = []
        for number in range(1, options.rounds + 1):
            ours.append(shop.run_walle(source))
            ours_packed.append(shop.run_walle(packed))
            plain.append(shop.run_plain(source, size["events"]))
            print(
                f"shop, round {number}: walle {ours[-1]['events_per_cpu_second']:,.0f}, packed "
                f"{ours_packed[-1]['events_per_cpu_second']:,.0f}, "
                f"plain loop {plain[-1]:,.0f} events per CPU-second",
                flush=True,
            )
        stages = [shop.measure_stages(source) for _ in range(min(options.rounds, 3))]
        stages_packed = [shop.measure_stages(packed) for _ in range(min(options.rounds, 3))]
    result = shop.summary(ours, plain)
    result_packed = shop.summary(ours_packed, plain)
    for title, each in (("JSON Lines", result), ("packed", result_packed)):
        print(
            f"shop, {title}, median: walle {each['walle_events_per_cpu_second']:,}, plain loop "
            f"over JSON Lines {each['plain_loop_events_per_cpu_second']:,}, ratio {each['ratio']}; "
            f"a commit every {each['ms_per_commit']} ms, exit to commit p99 "
            f"{each['exit_to_commit_p99_ms']} ms"
        )
    middle, middle_packed = _medians(stages), _medians(stages_packed)
    for name, cost in sorted(middle.items(), key=lambda item: -item[1]):
        print(f"  {name:<26}{cost:>7.2f}{middle_packed[name]:>7.2f} us an event, packed beside it")
    return {
        **result,
        "devices": options.devices,
        "sessions": options.sessions,
        "bytes": size["bytes"],
        "stages_us_per_event": middle,
        "packed": {
            **result_packed,
            "bytes": packed_size["bytes"],
            "stages_us_per_event": middle_packed,
        },
    }


def measure_busy(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what neighbours and partitions cost."""
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        source = Path(folder) / "shop.jsonl"
        # some 100,000 events of the shop's usual size
        simulate(source, options.seed, options.devices, max(options.sessions // 3, 1))
        found = busy.measure(source, options.rounds)
    print("\n".join(busy.lines(found)))
    return found


def measure_hosts(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure what a second host brings over a file in parts; None without Ray."""
    if not find_spec("ray"):
        return None
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        source = Path(folder) / "shop.jsonl"
        # twice the usual, as starts differ by some tenths of a second
        simulate(source, options.seed, options.devices, 2 * options.sessions)
        found = hosts.measure(source, options.rounds)
    print("\n".join(hosts.lines(found)))
    return found


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in rounds), 3) for name in rounds[0]}


def main() -> int:
    """Run the rounds, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--feed", type=Path, default=FEED if FEED.exists() else SAMPLE)
    parser.add_argument("--devices", type=int, default=1_000, help="of the shop")
    parser.add_argument("--sessions", type=int, default=6, help="visits of each")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/pipeline.json")
    options = parser.parse_args()
    known = json.loads(options.json.read_text()) if options.json.exists() else {}
    jobs = options.jobs
    result = {
        "bench": "pipeline",
        "rounds": options.rounds,
        "seed": options.seed,
        **(measure_feed(options) if "feed" in jobs else known),
        "shop": measure_shop(options) if "shop" in jobs else known.get("shop"),
        "busy": measure_busy(options) if "busy" in jobs else known.get("busy"),
        "hosts": measure_hosts(options) if "hosts" in jobs else known.get("hosts"),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("walle-stream", "rocksdict", "msgspec")},
        },
        # of the main job; the busy rounds have their own
        "date": time.strftime("%Y-%m-%d") if "feed" in jobs else known.get("date", ""),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print("latency at half of the maximum rate: make bench-latency")
    print("memory over 10 million events: make bench-growth")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
