"""Fuzzes what a script can reach, with two devices: ``make fuzz-guest``.

A program of device a runs in a VM that has run many, then a fixed probe and another program of
device b. Device b must see the same as in a VM where a never ran. No text may have become code, no
guard may be off, and the library's own state must be unchanged. A difference is tried
again in fresh VMs, shrunk, and reported with its seed.

A worker runs some hundred programs and is replaced; one that a program crashes or holds up
(``shared`` does not promise that it cannot) goes on behind that program.
"""

import argparse
import json
import marshal
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from grammar import probe, program, source
from harness import OpenedVm
from reviewed import KEPT, unknown

from walle_stream.errors import ScriptError
from walle_stream.vm.program import TaskProgram, compile_program

BATCH: Final = 1_000
STUCK_S: Final = 20.0
_PROBED: Final = 400  # expressions that the probe looks at
_CODE: Final = 2  # place of the code in a packed program
_HARMLESS: Final = (
    "values.append('{}'.format(len))",
    "values.append([[n] for n in range(1000)])",
    "values.extend(own(Plain, n) for n in range(50))",
)
_OTHER: Final = 1 << 32  # seeds of the second device's programs


class Failure(NamedTuple):
    seed: int
    what: str
    steps: list[str]
    other: list[str]


class Player:
    """Two VMs: one has run every program so far, one those of device b alone.

    ``hole`` is code that opens one, to see whether it is found.
    """

    def __init__(self, hole: str = "") -> None:
        self.hole = hole
        self.used = self.opened()
        known = self.used.ask("remember()")
        self.atoms = [each for each in known["nodes"] if is_tried(each)]
        self.names = [each for each in known["names"] if is_tried(each)]
        self.lasting = [each for each in known["lasting"] if is_tried(each)]
        self.probe = compiled(probe(self.lasting[:: len(self.lasting) // _PROBED]))
        assert self.probe is not None
        self.clean = self.opened()
        self.expected = self.played(self.clean, (self.probe, "b"))[0]

    def opened(self) -> Any:
        vm = OpenedVm("walk", "look", "play")
        if self.hole:
            vm.run(self.hole)
        return vm

    def close(self) -> None:
        for vm in (self.used, self.clean):
            vm.__exit__()

    def played(self, vm: Any, *pairs: tuple[bytes, str]) -> list[list[str]]:
        found: list[list[str]] = vm.ask("play(_given)", _given=marshal.dumps(list(pairs)))
        return found

    def steps(self, seed: int) -> list[str]:
        return program(seed, self.atoms, self.names)

    def look(self, seed: int) -> Failure | None:
        """Run one program of each device; say what is wrong."""
        steps, other = self.steps(seed), self.steps(seed + _OTHER)
        first, second = compiled(source(steps)), compiled(source(other))
        if first is None or second is None:
            return None  # no Python: the grammar knows no types
        used = self.played(self.used, (first, "a"), (self.probe, "b"), (second, "b"))
        clean = self.played(self.clean, (second, "b"))
        guards = [each[1] for each in (*used, *clean) if each[1]]
        if guards:
            return Failure(seed, guards[0], steps, other)
        if used[1] != self.expected:
            return self.shrunk(seed, "the probe of b sees something else", steps, other)
        if used[2] != clean[0]:
            return self.shrunk(seed, "a program of b sees something else", steps, other)
        return None

    def shrunk(self, seed: int, what: str, steps: list[str], other: list[str]) -> Failure | None:
        if any(differs(self, [each], other) for each in _HARMLESS):
            return None  # b differs from itself: an address, the order of a set
        if not differs(self, steps, other):
            return Failure(seed, f"{what}, after those before it", steps, other)
        return Failure(
            seed,
            what,
            fewer(steps, lambda some: differs(self, some, other)),
            fewer(other, lambda some: differs(self, steps, some)),
        )

    def kept(self) -> list[str]:
        """Return what the library keeps and has changed, other than as reviewed."""
        changed = self.used.ask("changed()")
        strange = unknown([each[:2] for each in changed], KEPT)
        return strange + [f"{each[0]} {each[1]}: a script's object" for each in changed if each[2]]


def is_tried(expression: str) -> bool:
    # the gate refuses the first two here, the rest never ends
    left_out = ("__future__", "__match_args__", "itertools.count", "itertools.cycle")
    return not any(each in expression for each in (*left_out, "itertools.repeat"))


def differs(player: Player, steps: list[str], other: list[str]) -> bool:
    """Tell whether b sees another thing in a fresh VM when a has run some steps there."""
    first, second = compiled(source(steps)), compiled(source(other))
    if first is None or second is None:
        return False
    seen = []
    for before in ([(first, "a")], []):
        with player.opened() as vm:
            results = player.played(vm, *before, (player.probe, "b"), (second, "b"))
        if any(each[1] for each in results):
            return True
        seen.append(results[len(before) :])
    return seen[0] != seen[1]


def fewer(steps: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Leave out what is not needed to fail."""
    at = 0
    while at < len(steps):
        rest = steps[:at] + steps[at + 1 :]
        if rest and fails(rest):
            steps = rest
        else:
            at += 1
    return steps


def compiled(text: str) -> bytes | None:
    """Compile as a task's script is; None for what is none."""
    try:
        packed = compile_program(TaskProgram("t", "v", text, "t.py")).packed
    except ScriptError:
        return None
    return marshal.dumps(marshal.loads(packed)[_CODE])  # noqa: S302 - made above


def work(begin: int, end: int) -> None:
    """Run some programs; one line of JSON for each."""
    player = Player()
    for seed in range(begin, end):
        failure = player.look(seed)
        say({"seed": seed, "failure": None if failure is None else failure._asdict()})
        if failure is not None:
            break  # its VMs are not as they were
    else:
        say({"seed": end, "kept": player.kept()})
    player.close()


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def lines_of(begin: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield what a worker says; ends when it ends or is stuck."""
    command = [sys.executable, __file__, "--work", str(begin), str(end)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as worker:
        assert worker.stdout is not None
        selector = selectors.DefaultSelector()
        selector.register(worker.stdout, selectors.EVENT_READ)
        while selector.select(STUCK_S * 4):
            line = worker.stdout.readline()
            if not line:
                break
            yield json.loads(line)
        worker.kill()


def fuzz(count: int, seed: int, said: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run programs; return how many ran, what failed, what ended a worker."""
    report: dict[str, Any] = {"count": 0, "first_seed": seed, "failures": [], "ended": []}
    at, last = seed, seed + count
    while at < last and not report["failures"]:
        end = min(at + BATCH, last)
        is_whole = False
        for line in lines_of(at, end):
            at = line["seed"]
            if "kept" in line:
                is_whole = True
                report["failures"] += [{"seed": at, "what": each} for each in line["kept"]]
            elif line["failure"] is not None:
                report["failures"].append(line["failure"])
                is_whole = True
            else:
                at += 1
                report["count"] += 1
        if not is_whole:
            report["ended"].append(at)
            at += 1
        said(report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--json", type=Path, help="where the report goes; a run goes on from it")
    parser.add_argument("--work", type=int, nargs=2, metavar=("BEGIN", "END"))
    given = parser.parse_args()
    if given.work:
        work(*given.work)
        return 0
    before: dict[str, Any] = {"count": 0, "ended": []}
    if given.json and given.json.exists():
        before = json.loads(given.json.read_text())
        if before["first_seed"] != given.seed or before["failures"]:
            before = {"count": 0, "ended": []}
    done = before["count"] + len(before["ended"])
    began = time.monotonic()

    def said(report: dict[str, Any]) -> None:
        whole = {**report, "first_seed": given.seed, "python": sys.version.partition(" ")[0]}
        whole["count"] += before["count"]
        whole["ended"] = before["ended"] + report["ended"]
        if given.json:
            given.json.write_text(json.dumps(whole, indent=1) + "\n")
        seconds = time.monotonic() - began
        print(f"{whole['count']} programs, {len(whole['ended'])} ended a worker, {seconds:.0f} s")

    report = fuzz(given.count - done, given.seed + done, said)
    for failure in report["failures"]:
        print(json.dumps(failure, indent=1))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
