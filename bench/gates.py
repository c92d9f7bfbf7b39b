"""What the gates of releases decide, over simulated fleets: make gates.

Some releases have versions like their predecessor, others have versions that fail on a few
devices. All go through the product's own gate code (``release.logrank``, ``memory`` and
``gates``), which looks at every minute. The fleets are simulated, with failures of devices one by
one; the error rate is the default. Progress on stderr, tables on stdout. One core; ``--runs 20
--only broken`` for a look. Settings that are done are kept in ``--kept FILE``: begun again, it
goes on after them, where the code is the same.
"""

import argparse
import ast
import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from apart import ROOT
from console import keep, show, surroundings
from gates_parts.deciding import GATES, decide
from gates_parts.fleet import PERCENTS, Setting
from gates_parts.tables import bars, tables, title_of
from vm_parts.measuring import say

RUNS: Final = 400
BASES: Final = (1e-4, 5e-3)
STEPS: Final = (10, 360, 1_440)
FAILING: Final = (0.02, 0.005)
KINDS: Final = ("spread", "slow", "broken", "busy")
_MOST: Final = 10_000
_TENTH: Final = 0.1


def main() -> int:
    """Simulate, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="of each setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="settings whose title has this in it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kept", type=Path, default=ROOT / ".bench-gates.jsonl")
    options = parser.parse_args()
    is_whole = options.runs >= RUNS and not options.only
    path = options.json or (ROOT / "bench/results/gates.json" if is_whole else None)
    load, began = os.getloadavg()[0], time.monotonic()
    chosen = [each for each in settings() if options.only in title_of(each._asdict())]
    result: dict[str, Any] = {
        "bench": "gates",
        "trial": not is_whole,
        "seed": options.seed,
        "runs": options.runs,
        "error_rate": GATES.error_rate,
        "percents": PERCENTS,
        "settings": [
            _kept(options.kept, [_code(), options.seed, options.runs, each], number, len(chosen))
            for number, each in enumerate(chosen, 1)
        ],
        "seconds": round(time.monotonic() - began),
        **surroundings(load),
    }
    result["bars"] = bars(result)
    show(tables(result))
    keep(result, path, "not all settings, or fewer runs than the bars ask for")
    return 0


def settings() -> list[Setting]:
    """Return what is simulated: versions that are alike, odd fleets, versions that fail."""
    grid = list(product(BASES, STEPS, (False, True)))
    found = [Setting(devices, *each) for devices in (1_000, _MOST) for each in grid]
    found += [
        Setting(_MOST, *each, kind=kind)
        for kind, each in product(KINDS, product(BASES, STEPS[:2], (True,)))
    ]
    found += [
        Setting(_MOST, BASES[0], *each, kind=kind)
        for kind, each in product(("busy 5 %", "busy 10 %"), product((10, 30, 60), (False, True)))
    ]
    found += [Setting(1_000, *each, kind="busy") for each in product(BASES, (60,), (True,))]
    found += [Setting(_MOST, *each, failing) for failing, each in product(FAILING, grid)]
    return found + [
        Setting(_MOST, base, STEPS[0], daily=True, failing=failing, kind=kind)
        for kind, failing, base in product(KINDS[:3], FAILING, BASES)
    ]


def _code() -> str:
    """Return a digest of what decides, and of what simulates; no comment or docstring counts."""
    names = ("walle_deploy.model.health", "walle_deploy.release.", "gates_parts.")
    found = blake2b(digest_size=8)
    for name, module in sorted(sys.modules.items()):
        if name.startswith(names) and name != "gates_parts.tables" and module.__file__:
            tree = ast.parse(Path(module.__file__).read_bytes())
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    node.body = [each for each in node.body if not _is_text(each)]
            found.update(ast.dump(tree).encode())
    return found.hexdigest()


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _kept(path: Path, key: list[Any], number: int, count: int) -> dict[str, Any]:
    """Return what was measured of a setting: now, or when this was begun before."""
    wanted = json.loads(json.dumps(key))
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        with suppress(json.JSONDecodeError):  # the last one may be cut
            done = json.loads(line)
            if done["key"] == wanted:
                return dict(done["found"])
    _, seed, runs, setting = key
    found = _measured(setting, seed, runs)
    say(f"{number} of {count} settings")
    with path.open("a") as file:
        file.write(json.dumps({"key": key, "found": found}) + "\n")
    return found


def _measured(setting: Setting, seed: int, runs: int) -> dict[str, Any]:
    began = time.monotonic()
    ended = [decide(setting, seed, number) for number in range(runs)]
    stopped = [each for each in ended if each.stopped_at is not None]
    reached = [each.reached for each in stopped]
    seconds = time.monotonic() - began
    say(f"{title_of(setting._asdict())}: {len(stopped)} of {runs} stopped, {seconds:.0f} s")
    return {
        **setting._asdict(),
        "runs": runs,
        "stopped": len(stopped),
        "by_gate": Counter(each.gate for each in stopped),
        "before_a_tenth": sum(each < _TENTH for each in reached),
        "reached": [round(float(each), 4) for each in np.quantile(reached, (0.05, 0.5, 0.95))]
        if reached
        else None,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    raise SystemExit(main())
