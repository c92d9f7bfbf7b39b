"""ONNX's cases on onnxruntime, the ONNX reference and MNN: make conformance-peers.

The same cases, subsets and tolerances as for our own backends (``make conformance``),
and nothing left out: a case passes if all of its data sets match. Each peer runs in a
process of its own, which is started again when a case ends it. Progress on stderr, the
tables on stdout.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from conformance_parts.counting import chosen, counted
from conformance_parts.peers import PEERS, Peer
from conformance_parts.process import PeerProcess
from conformance_parts.tables import FORMAT, counts, tables
from console import keep, show, surroundings
from engine_parts.contenders import prepared
from peers_parts.environments import Environment, Missing
from peers_parts.options import ROOT
from vm_parts.measuring import say

NAMES: Final = [each.contender.name for each in PEERS]


def main() -> int:
    """Count, print the tables, write the JSON."""
    options = _options()
    began = time.monotonic()
    load = os.getloadavg()[0]
    found, missing = [], []
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        cases = options.cases or Path(folder) / "cases.zip"
        if not cases.exists():
            say("writing the cases")
            made = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.cases"]
            subprocess.run([*made, str(cases)], check=True, capture_output=True)
        for peer in PEERS:
            if peer.contender.name not in options.peers:
                continue
            ready = _environment(peer, options)
            if isinstance(ready, Missing):
                say(f"{peer.title} does not take part: {ready.reason}")
                missing.append({"title": peer.title, "reason": ready.reason})
                continue
            work = Path(folder) / peer.contender.name
            work.mkdir()
            found.append(_peer(peer, ready, cases, work, options))
    result: dict[str, Any] = {
        "bench": "conformance-peers",
        "format": FORMAT,
        "seed": 0,
        "settings": {"limit_s": options.limit_s, "words": options.words},
        "onnx": version("onnx"),
        "peers": found,
        "missing": missing,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    result["versions"]["numpy"] = version("numpy")
    show(tables(result))
    path = options.json
    if path is None and len(found) == len(PEERS) and not options.words:
        path = ROOT / "bench/results/conformance-peers.json"
    keep(result, path, "not all cases, or not all peers")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="run cases whose names contain one of these")
    parser.add_argument("--peers", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--limit-s", type=float, default=120.0, help="seconds of one case (120)")
    parser.add_argument("--cases", type=Path, help="a file of cases; made anew without it")
    parser.add_argument("--installed", action="store_true", help="install nothing")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--json", type=Path, help="bench/results/conformance-peers.json")
    options = parser.parse_args()
    if options.limit_s <= 0:
        parser.error("--limit-s must be above 0")
    return options


def _environment(peer: Peer, options: argparse.Namespace) -> Environment | Missing:
    if peer.contender.requirement:
        return prepared(peer.contender, options.environments, may_install=not options.installed)
    return Environment(Path(sys.executable), platform.python_version(), version("onnx"))


def _peer(
    peer: Peer, ready: Environment, cases: Path, folder: Path, options: argparse.Namespace
) -> Mapping[str, Any]:
    say(peer.title)
    name = peer.contender.name
    with PeerProcess(ready.python, name, folder, options.limit_s) as process:
        count = counted(chosen(cases, options.words), peer, process)
    return {
        "name": name,
        "title": peer.title,
        "version": ready.version,
        "python": ready.python_version,
        "note": peer.note,
        **counts(count),
    }


if __name__ == "__main__":
    raise SystemExit(main())
