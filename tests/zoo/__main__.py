"""``make zoo``: real models that packages ship, ours beside onnxruntime, one thread each.

Downloads what the cache lacks ($WALLE_ZOO_CACHE, else walle-zoo in the user's cache) and checks
digests. Each engine runs each model in a process of its own, with the same inputs of a seed; rounds
take turns. Progress on stderr, tables on stdout. Exit codes: 0 all agree or are near, 1 not all, 2 wrong usage
or no onnxruntime.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
from console import keep, show, surroundings
from engine_parts.contenders import ONNXRUNTIME, OURS, prepared
from engine_parts.running import Child, Files, measured
from peers_parts.environments import Missing
from peers_parts.options import ROOT
from vm_parts.measuring import say

from tests.zoo.download import DownloadError, cache_folder, fetch, model_path
from tests.zoo.inputs import drawn
from tests.zoo.manifest import read_manifest
from tests.zoo.moved import COPIES, moved
from tests.zoo.tables import EQUAL, bars, tables
from tests.zoo.verdicts import different, distance, verdict


def main():
    """Run the models, print the tables, write the JSON."""
    options = _options()
    began, load = time.monotonic(), os.getloadavg()[0]
    peer = prepared(ONNXRUNTIME, options.environments, may_install=not options.installed)
    if isinstance(peer, Missing):
        say(f"zoo: {peer.reason}")
        return 2
    runners = {OURS.name: Path(sys.executable), ONNXRUNTIME.name: peer.python}
    found, missing = [], []
    for archive in read_manifest():
        chosen = [each for each in archive.models if _is_chosen(each.name, options.names)]
        if not chosen:
            continue
        try:
            fetch(archive, options.cache)
        except DownloadError as error:
            say(f"{archive.package}: {error}")
            missing.append({"package": archive.package, "reason": str(error)})
            continue
        found += [_model(archive, each, runners, options) for each in chosen]
    result = {
        "bench": "zoo",
        "trial": options.trial,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("rounds", "target_s")},
        "models": found,
        "missing": missing,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    result["versions"] |= {"numpy": version("numpy"), "onnxruntime": peer.version}
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and not options.names and not missing:
        path = ROOT / "bench/results/zoo.json"
    keep(result, path, "not all models")
    return int(bool(missing) or any(each["verdict"] not in EQUAL for each in found))


def _options():
    parser = argparse.ArgumentParser(prog="make zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="models whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=7, help="how often both run each (7)")
    parser.add_argument("--target-s", type=float, default=0.2, help="seconds of a turn (0.2)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--installed", action="store_true", help="install no onnxruntime")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--json", type=Path, help="bench/results/zoo.json")
    options = parser.parse_args()
    if options.rounds < 1 or options.target_s <= 0:
        parser.error("--rounds and --target-s must be above 0")
    return options


def _is_chosen(name, words):
    return not words or any(word in name for word in words)


def _model(archive, model, runners, options):
    say(model.name)
    path = model_path(model, options.cache)
    file = onnx.load(path)
    given = drawn(file, model, options.seed)
    with tempfile.TemporaryDirectory(prefix="walle-zoo-") as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **given)
        files = Files(path, inputs, tuple(each.name for each in file.graph.output))
        compare = partial(_compared, files, runners)
        result = measured(files, runners, options.rounds, options.target_s, compare)
    # where the cache is matters to nobody else
    failed = {name: text.replace(str(path), path.name) for name, text in result["failed"].items()}
    judged = verdict(failed, result["difference"])
    say(f"  {judged['verdict']} {judged['operator']} {judged['reason']}")
    figures = result["contenders"]
    for each in figures.values():
        del each["rounds"]
    return {
        "name": model.name,
        "package": f"{archive.package} {archive.version}",
        "nodes": len(file.graph.node),
        "inputs": {key: list(data.shape) for key, data in given.items()},
        **judged,
        "contenders": figures,
        "ratio": result["ratios"].get(ONNXRUNTIME.name, {}),
    }


def _compared(files, runners, made):
    if set(made) != set(runners):
        return {}
    mine, theirs = made[OURS.name], made[ONNXRUNTIME.name]
    found = {"reason": different(mine, theirs), "away": distance(mine, theirs)}
    if found["reason"]:
        found["spread"] = max(_moved_distances(files, runners[ONNXRUNTIME.name], theirs))
    return found


def _moved_distances(files, python, wanted):
    file = onnx.load(files.model)
    copy = files.inputs.with_name("moved.onnx")
    for seed in range(COPIES):
        onnx.save(moved(file, seed), copy)
        with Child(ONNXRUNTIME.name, python, files._replace(model=copy)) as child:
            yield distance(child.outputs(), wanted)


if __name__ == "__main__":
    raise SystemExit(main())
