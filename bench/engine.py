"""The tensor engine against onnxruntime and MNN, one thread each: make bench-engine.

Named architectures with random weights of a seed, see ``models``. Each engine runs
each model in a process of its own; rounds take turns; what counts is CPU time, and
that all give the same. Progress on stderr, the tables on stdout.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from console import keep, show, surroundings
from engine_parts.contenders import CONTENDERS, OURS, prepared
from engine_parts.running import Files, Runners, measured
from engine_parts.tables import bars, tables
from models.registry import ARCHITECTURES
from peers_parts.environments import Environment, Missing
from peers_parts.options import ROOT
from vm_parts.measuring import say

from walle_stream.engine import Module
from walle_stream.engine.session import read_model

NAMES: Final = list(ARCHITECTURES)
_CPU_FLAGS: Final = ("avx2", "fma", "avx512f", "amx_tile")


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    began = time.monotonic()
    load = os.getloadavg()[0]
    ready: dict[str, Environment] = {}
    missing = []
    for contender in CONTENDERS:
        found = (
            Environment(Path(sys.executable), platform.python_version(), "")
            if contender is OURS
            else prepared(contender, options.environments, may_install=not options.installed)
        )
        if isinstance(found, Missing):
            say(f"{contender.title} does not take part: {found.reason}")
            missing.append({"title": contender.title, "reason": found.reason})
        else:
            ready[contender.name] = found
    runners = {name: each.python for name, each in ready.items()}
    result: dict[str, Any] = {
        "bench": "engine",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("rounds", "target_s")},
        "contenders": [
            {
                "name": each.name,
                "title": each.title,
                "version": ready[each.name].version,
                "python": ready[each.name].python_version,
                "note": each.note,
            }
            for each in CONTENDERS
            if each.name in ready
        ],
        "models": [_model(name, options, runners) for name in options.models],
        "missing": missing,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    result["versions"]["numpy"] = np.__version__
    result["machine"]["instructions"] = _instructions()
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and not options.quick and options.models == NAMES and not missing:
        path = ROOT / "bench/results/engine.json"
    keep(result, path, "a quick look, or not all models and peers")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--rounds", type=int, help="how often everyone runs each (7)")
    parser.add_argument("--target-s", type=float, help="seconds of a turn (1)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--quick", action="store_true", help="small shapes, one short round")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--installed", action="store_true", help="install nothing")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--json", type=Path, help="bench/results/engine.json")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 7)
    options.target_s = options.target_s or (0.01 if options.quick else 1.0)
    if options.rounds < 1 or options.target_s <= 0:
        parser.error("--rounds and --target-s must be above 0")
    return options


def _model(name: str, options: argparse.Namespace, runners: Runners) -> dict[str, Any]:
    architecture = ARCHITECTURES[name]
    say(architecture.title)
    build = architecture.build_small if options.quick else architecture.build
    drawn = build(options.seed)
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        outputs = tuple(each.name for each in drawn.model.graph.output)
        files = Files(Path(folder) / "model.onnx", Path(folder) / "inputs.npz", outputs)
        onnx.save(drawn.model, files.model)
        np.savez(files.inputs, **drawn.inputs)
        found = measured(files, runners, options.rounds, options.target_s)
        stages = Module(read_model(files.model)).profile(drawn.inputs, 1).stages
    return {
        "name": name,
        "title": architecture.title,
        "inputs": {key: list(data.shape) for key, data in drawn.inputs.items()},
        "stages": {stage: asdict(each) for stage, each in stages.items()},
        **found,
    }


def _instructions() -> list[str]:
    """Give which vector instructions this machine has, where the kernel says so."""
    path = Path("/proc/cpuinfo")
    known = set(path.read_text(encoding="utf-8").split()) if path.exists() else set()
    return [each for each in _CPU_FLAGS if each in known]


if __name__ == "__main__":
    raise SystemExit(main())
