"""The service under load: what each kind of request costs it, and how long answers take.

Each round measures all lines in succession, so that a slow minute of the machine affects all of
them. The contended rounds have a busy neighbour on each core, including the service's.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from neighbours import busy_neighbours
from vm_parts.measuring import say

from release_parts.fleet import Fleet
from release_parts.load import Rate, ask_once, run_load
from release_parts.pages import looks, stock_pages
from release_parts.proving import set_up
from release_parts.serving import Served, floor, service
from release_parts.stocking import checks, proofs, relayed, reports, stock
from release_parts.tables import LINES, RELAYED, STEADY

_CLOSED: Final = 64
"""Connections that keep a worker busy without a queue of hundreds."""
_OPEN: Final = 1_000
"""More than ``limits.pending``, so that refusals can begin."""
_FEW: Final = {"relay": 8, "page": 4}
_MOST: Final = Rate(0)
"""As many as it can."""


class _Line(NamedTuple):
    target: Served
    requests: Iterator[bytes]
    connections: int
    each: int = 1
    """Reports that a request brings."""


def measure_loads(
    fleet: Fleet, rounds: int, seconds: float, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """Return what was measured in each round, ``quiet`` and ``contended``; blocks.

    Args:
        fleet: Whose releases the service has, and whose devices ask.
        rounds: Of both.
        seconds: Of a load in a round.
        seed: Of the times at which requests are due.
    """
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="walle-bench-")))
        stack.callback(os.sched_setaffinity, 0, cores)
        # what is started here inherits it: the generator is never on the service's core
        os.sched_setaffinity(0, set(cores[1:]) or set(cores))
        lines = _lines(stack, folder, fleet, cores[0])
        _prove(lines)
        _warm(lines, len(fleet.profiles), seconds)
        found: dict[str, list[dict[str, Any]]] = {"quiet": [], "contended": []}
        for _ in range(rounds):
            found["quiet"].append(_round(lines, seconds, seed))
            os.sched_setaffinity(0, cores)
            with busy_neighbours(len(cores)):
                os.sched_setaffinity(0, set(cores[1:]) or set(cores))
                found["contended"].append(_round(lines, seconds, seed))
        return found


def _lines(stack: ExitStack, folder: Path, fleet: Fleet, core: int) -> dict[str, _Line]:
    asking, opened, key = set_up(folder)
    store, paged = str(folder / "releases.db"), str(folder / "pages.db")
    devices = stock(store, fleet)
    stock_pages(paged)
    tokens = proofs(devices, key)
    now, behind = [each.profile for each in devices], [each.behind for each in devices]

    def start(file: Path, address: str) -> Served:
        named = (str(file), "--store", address, "--files", "http://files.example")
        return stack.enter_context(service(core, *named))

    proven, anybody, pages = start(asking, store), start(opened, store), start(asking, paged)
    made = {
        "floor": (stack.enter_context(floor(core)), checks(now, tokens)),
        "nothing": (proven, checks(now, tokens)),
        "nothing_open": (anybody, checks(now, {})),
        "push": (proven, checks(behind, tokens)),
        "push_open": (anybody, checks(behind, {})),
        "report": (proven, reports(devices, tokens)),
        "relay": (proven, relayed(devices, key)),
        "page": (pages, looks(key)),
    }
    return {
        name: _Line(*line, _FEW.get(name, _CLOSED), RELAYED if name == "relay" else 1)
        for name, line in made.items()
    }


def _prove(lines: Mapping[str, _Line]) -> None:
    """Look once at what each line's answers are: they are counted by their status alone.

    Raises:
        AssertionError: They are others than the line's name says.
    """
    for name, line in lines.items():
        status, body = ask_once(line.target.address, next(line.requests))
        kind = name.removesuffix("_open")
        if kind in {"floor", "nothing"}:
            is_right = status == 204 and not body  # noqa: PLR2004 - HTTP
        elif kind == "page":
            is_right = body.startswith(b"<!doctype html>") and b"r-1" in body
        else:
            said = msgspec.json.decode(body)
            if kind == "push":
                [pushed] = said["tasks"]
                is_right = bool(pushed["files"]) and [*said["receipts"]] == [pushed["task"]]
            else:
                is_right = said == {"new": line.each}
        if not is_right:
            raise AssertionError(f"{name} was answered with {status} {body[:200]!r}")


def _warm(lines: Mapping[str, _Line], devices: int, seconds: float) -> None:
    # classes are made, the interpreter has specialised its loops, and every token was verified:
    # what is measured is a token that was seen before
    for name, line in lines.items():
        asked, wanted = 0, devices if name == "nothing" else 1
        while asked < wanted:
            found = run_load(line.target.address, line.requests, line.connections, seconds, _MOST)
            asked += sum(each["count"] for each in found["by_status"].values())


def _round(lines: Mapping[str, _Line], seconds: float, seed: int) -> dict[str, Any]:
    def load(name: str, rate: Rate = _MOST, connections: int = 0) -> dict[str, Any]:
        line = lines[name]
        cpu = line.target.cpu_s()
        opened = connections or line.connections
        found = run_load(line.target.address, line.requests, opened, seconds, rate, seed)
        spent = line.target.cpu_s() - cpu
        answered = sum(each["count"] for each in found["by_status"].values()) * line.each
        return found | {
            "cpu_s": round(spent, 3),
            "per_core_s": round(answered / spent, 1),
            "rss_mb": round(line.target.rss_mb(), 1),
        }

    made = {name: load(name) for name in LINES}
    for name in STEADY:
        # each device has a connection of its own, which costs more than requests of few devices
        trial = load(name, Rate(made[name]["per_s"] * 0.5), _OPEN)
        requests = sum(each["count"] for each in trial["by_status"].values()) + _OPEN
        most = min(made[name]["per_s"], requests / trial["cpu_s"])
        made[f"steady_{name}"] = load(name, Rate(most * 0.7), _OPEN)
    made["past"] = load("nothing", Rate(made["nothing"]["per_s"] * 2.0, is_dropped=True), _OPEN)
    rates = ", ".join(f"{name} {made[name]['per_core_s']:,.0f}" for name in LINES)
    say(f"{rates} a second and core; p99 at 70 % {made['steady_nothing']['p99_ms']} ms")
    return made
