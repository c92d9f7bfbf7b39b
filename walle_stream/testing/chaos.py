"""Chaos: ``kill -9`` a pipeline again and again, then count.

One *life* is a fresh data directory: the run is started and killed until it
ends by itself; then its features and its canonical state must be the bytes of
a run that nobody killed. Half of the kills are aimed at named crash points,
half come at random moments. A kill counts only when the run it hit had
committed something and had not yet committed everything.

Run it with ``python -m walle_stream.testing.chaos --kills 500``.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.app.query import canonical_state, features_lines, run_state
from walle_stream.errors import StoreError, WalleError
from walle_stream.faults import CRASH_POINTS

RUN_TIMEOUT_S: Final = 120.0
"""A run that takes longer than this hangs: that is a finding."""


class ChaosPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to kill and how often."""

    pipeline: str
    overrides: tuple[str, ...] = ()
    kills: int = 50
    seed: int = 1
    hosts: int = 2
    mean_delay_s: float = 0.25
    """Mean time from the first sign of life to a kill at a random moment."""
    max_visits: int = 60
    """Kills at crash points hit one of the first so many visits of the point."""


class ChaosReport(msgspec.Struct, kw_only=True):
    """What was killed, when, and whether anything was lost or doubled."""

    kills: int = 0
    lives: int = 0
    runs: int = 0
    not_counted: int = 0
    by_phase: dict[str, int] = {}
    """Counted kills by what the process was doing: ``at NAME`` for a crash
    point, ``after NAME`` for a random moment."""
    mismatches: list[str] = []
    seed: int = 0
    wall_s: float = 0.0


class Chaos:
    """One campaign of kills; see the module's docstring."""

    def __init__(self, plan: ChaosPlan, folder: Path) -> None:
        """Prepare.

        Args:
            plan: What to do.
            folder: Where the data directories go; those of failed lives stay.
        """
        self._plan = plan
        self._folder = folder
        # seeded for repeatability, not for secrecy
        self._random = random.Random(plan.seed)  # noqa: S311
        self._phase_file = folder / "phase"
        self.report = ChaosReport(seed=plan.seed)

    def run(self, *, is_shown: bool = False) -> ChaosReport:
        """Kill until the plan's number of kills counted; blocks.

        Args:
            is_shown: Print progress to stderr.
        """
        started_s = time.monotonic()
        reference = self._folder / "reference"
        self._finish(reference)
        expected = _outcome(reference)
        while self.report.kills < self._plan.kills:
            self.report.lives += 1
            data_dir = self._folder / f"life-{self.report.lives}"
            self._live(data_dir, is_shown=is_shown)
            if _outcome(data_dir) != expected:
                self.report.mismatches.append(data_dir.name)
                break
            _remove(data_dir)
        self.report.wall_s = round(time.monotonic() - started_s, 1)
        return self.report

    def _live(self, data_dir: Path, *, is_shown: bool) -> None:
        while self.report.kills < self._plan.kills:
            is_aimed = self._random.random() < 0.5  # noqa: PLR2004 - half of them
            phase = self._aimed_kill(data_dir) if is_aimed else self._random_kill(data_dir)
            self.report.runs += 1
            if phase is None:
                return
            if self._counts(data_dir):
                self.report.kills += 1
                self.report.by_phase[phase] = self.report.by_phase.get(phase, 0) + 1
            else:
                self.report.not_counted += 1
            if is_shown:
                counted, wanted = self.report.kills, self._plan.kills
                print(
                    f"\r{counted}/{wanted} kills, life {self.report.lives}", end="", file=sys.stderr
                )
        self._finish(data_dir)

    def _aimed_kill(self, data_dir: Path) -> str | None:
        point = self._random.choice(CRASH_POINTS)
        visit = 1 if point == "close.before" else self._random.randint(1, self._plan.max_visits)
        process = self._start(data_dir, {"WALLE_CRASH": f"{point}:{visit}"})
        return None if self._wait(process) == 0 else f"at {point}"

    def _random_kill(self, data_dir: Path) -> str | None:
        process = self._start(data_dir, {})
        deadline_s = time.monotonic() + RUN_TIMEOUT_S
        while process.poll() is None and self._phase_file.read_bytes()[:1] == b"\0":
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.002)
        try:
            process.wait(self._random.expovariate(1.0 / self._plan.mean_delay_s))
        except subprocess.TimeoutExpired:
            process.kill()
        phase = self._phase_file.read_bytes()[0]
        if self._wait(process) == 0:
            return None
        return f"after {CRASH_POINTS[phase - 1]}" if phase else "before any"

    def _start(self, data_dir: Path, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        plan = self._plan
        self._phase_file.write_bytes(b"\0")
        command = [sys.executable, "-m", "walle_stream.cli", "run", plan.pipeline]
        for override in plan.overrides:
            command += ["--set", override]
        command += ["--data-dir", str(data_dir), "--json", "--hosts", str(plan.hosts)]
        environ = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "WALLE_PHASE_FILE": str(self._phase_file),
            **environ,
        }
        return subprocess.Popen(  # noqa: S603 - our own command
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        _, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        if process.returncode not in {0, -9}:
            raise WalleError(
                f"a run ended with {process.returncode}, neither done nor killed: "
                f"{errors.decode(errors='replace')[-2000:]}"
            )
        return process.returncode

    def _finish(self, data_dir: Path) -> None:
        process = self._start(data_dir, {})
        if self._wait(process) != 0:
            raise WalleError(f"the run that nobody killed ended with {process.returncode}")
        self.report.runs += 1

    def _counts(self, data_dir: Path) -> bool:
        try:
            state = run_state(data_dir)
        except StoreError:
            return False  # killed before the data directory was complete
        return state.commits > 0 and not state.is_complete


def _outcome(data_dir: Path) -> tuple[bytes, bytes]:
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


def _remove(data_dir: Path) -> None:
    for path in sorted(data_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    data_dir.rmdir()


def render(report: ChaosReport) -> str:
    """Return the report for a person: totals and the histogram by phase."""
    lines = [
        (
            f"{report.kills} kills counted ({report.not_counted} not) in {report.lives} lives, "
            f"{report.runs} runs, {report.wall_s} s, seed {report.seed}"
        )
    ]
    widest = max(report.by_phase.values(), default=1)
    for phase, count in sorted(Counter(report.by_phase).items(), key=lambda item: -item[1]):
        lines.append(f"  {phase:<22} {count:>4} {'#' * max(1, count * 40 // widest)}")
    lines.append(
        f"DIFFERENT: {', '.join(report.mismatches)}"
        if report.mismatches
        else "features and canonical state: the bytes of the run that nobody killed"
    )
    return "\n".join(lines)


def main() -> int:
    """Run a campaign from the command line; 0 when nothing differed."""
    parser = argparse.ArgumentParser(description="kill -9 a pipeline and compare")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--pipeline", default="ipv")
    parser.add_argument("--set", action="append", default=[], help="like walle run")
    parser.add_argument("--json", type=Path, help="write the report here")
    options = parser.parse_args()
    plan = ChaosPlan(
        pipeline=options.pipeline,
        # small batches: many commits to hit; a later --set of the user's wins
        overrides=("spec.runtime.partitions=4", "spec.runtime.batchEvents=20", *options.set),
        kills=options.kills,
        seed=options.seed,
        hosts=options.hosts,
    )
    with tempfile.TemporaryDirectory(prefix="walle-chaos-") as folder:
        report = Chaos(plan, Path(folder)).run(is_shown=sys.stderr.isatty())
        if options.json:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    print(render(report))
    return 1 if report.mismatches else 0


if __name__ == "__main__":
    raise SystemExit(main())
