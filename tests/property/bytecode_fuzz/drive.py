"""Runs mutants in child processes and says which one ended its process.

python drive.py COUNT SEED...: a line per crash on stdout, the counts last.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PHASES = ("making", "checking", "running", "done")
PROGRESS_WORDS = 6


class Crash(NamedTuple):
    seed: str
    number: int
    phase: str
    status: int
    text: str


class Outcome(NamedTuple):
    made: int
    accepted: int
    late: int
    ended: int
    crashes: list[Crash]


def fuzz(seed, count, first=0, max_crashes=20):
    """Run mutants FIRST..COUNT of a seed; each crash costs a child."""
    made = accepted = late = ended = 0
    crashes = []
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONMALLOC": "debug"}
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        while first < count and len(crashes) < max_crashes:
            progress.write_bytes(bytes(8 * PROGRESS_WORDS))
            given = [str(HERE / "child.py"), str(progress), str(seed), str(first), str(count)]
            done = subprocess.run(
                [sys.executable, "-W", "ignore", *given],
                check=False, capture_output=True, env=environment,
            )  # fmt: skip
            number, phase, *counts = memoryview(progress.read_bytes()).cast("q")
            made, accepted, late, ended = (
                one + other
                for one, other in zip((made, accepted, late, ended), counts, strict=True)
            )
            if done.returncode == 0 and PHASES[phase] == "done":
                break
            text = done.stderr.decode(errors="replace")
            if done.returncode == 1 and PHASES[phase] == "making":
                raise RuntimeError(text)  # of the fuzz itself
            crashes.append(Crash(seed, number, PHASES[phase], done.returncode, text))
            first = number + 1
    return Outcome(made, accepted, late, ended, crashes)


def main():
    count = int(sys.argv[1])
    for seed in sys.argv[2:]:
        found = fuzz(seed, count)
        for each in found.crashes:
            print(
                f"seed {seed} mutant {each.number} {each.phase}: status {each.status}", flush=True
            )
            print("    " + "\n    ".join(each.text.splitlines()[:14]), flush=True)
        print(
            f"seed {seed}: made {found.made} accepted {found.accepted} late {found.late} ended {found.ended} crashes {len(found.crashes)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
