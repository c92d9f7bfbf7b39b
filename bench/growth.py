"""Memory of one process over 10 million events: make bench-growth.

The simulated shop with 1,000 devices in one partition, events made in the process:
some five minutes and more. Memory is sampled between two reads, RocksDB's own named
apart; a progress bar on stderr, tables on stdout.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from growth_parts.endless import CONNECTOR, Shop
from growth_parts.memory import Memory
from growth_parts.tables import WHOLE, bars, marks, tables
from pipeline_parts.shop import DEFINITION, overrides
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions

SAMPLES: Final = 400
_TOLD: Final = 10


def measure_growth(shop: Shop, data_dir: Path) -> dict[str, Any]:
    """Run the shop in this process, which is not to be used for anything else."""
    memory = Memory(max(shop.events // SAMPLES, 1))
    console = Console(stderr=True, highlight=False)
    told = 0

    def look(events: int) -> None:
        nonlocal told
        memory.look(events)
        if events * _TOLD // shop.events > told:
            told = events * _TOLD // shop.events
            last = memory.samples[-1]
            console.print(
                f"{events:,} events: RSS {last['rss_mib']:,.0f} MiB, "
                f"of it RocksDB's {last['rocksdb_mib']:,.0f}"
            )

    CONNECTOR.shop, CONNECTOR.look = shop, look
    given = overrides({"connector": "growth_parts.endless:CONNECTOR"})
    run = LocalRun(Assembly.load(DEFINITION, given), RunOptions(data_dir, hosts=1))
    columns = (TextColumn("events"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as shown:
        bar = shown.add_task("events", total=shop.events)
        report = run.run(lambda _share, events: shown.update(bar, completed=events))
        shown.update(bar, completed=report.run_events)
    disk_bytes = sum(path.stat().st_blocks * 512 for path in data_dir.rglob("*"))
    return {
        "events": report.run_events,
        "features": report.counters.features,
        "commits": report.counters.commits,
        "cpu_s": round(report.cpu_s, 1),
        "wall_s": round(report.wall_s, 1),
        "disk_mib": round(disk_bytes / 2**20, 1),
        "samples": memory.samples,
    }


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    shop = Shop(options.events, options.devices, options.seed, options.fresh)
    if options.out:  # in its own process
        options.out.write_text(json.dumps(measure_growth(shop, options.data_dir)))
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        given = {"events": shop.events, "devices": shop.devices, "seed": shop.seed}
        arguments = [f"--{name}={value}" for name, value in given.items()]
        arguments += ["--fresh"] * shop.is_fresh
        made = measure_apart(Path(__file__), *arguments, f"--data-dir={folder}/d")
    result: dict[str, Any] = {
        "bench": "growth",
        "seed": shop.seed,
        "settings": {"devices": shop.devices, "is_fresh": shop.is_fresh},
        **made,
        **surroundings(load),
        "bench_wall_s": round(time.monotonic() - began, 1),
    }
    result["marks"] = marks(result)
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and shop.events >= WHOLE and not shop.is_fresh:
        path = ROOT / "bench/results/growth.json"
    keep(result, path, "fewer events than the bar's, or other visits")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=WHOLE, help="how many (10,000,000)")
    parser.add_argument("--devices", type=int, default=1_000, help="visitors of the shop (1,000)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument(
        "--fresh", action="store_true", help="no visit twice: the script's state grows, too"
    )
    parser.add_argument("--json", type=Path, help="bench/results/growth.json")
    parser.add_argument("--data-dir", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.events < SAMPLES or options.devices < 1:
        parser.error(f"--events must be at least {SAMPLES}, --devices 1")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
