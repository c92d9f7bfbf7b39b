"""Runs of mutated models: ``python -m walle_stream.testing.onnx.fuzz --count 100000``.

A child process makes mutation after mutation (see ``mutations``), and reads, prepares and runs each
model. Results and errors of the engine are allowed. Any other exception, any output, a crash or a
hang is a finding, with a number that repeats it: ``--only NUMBER``. A child that crashed or hung is
replaced.
"""

import argparse
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from walle_stream.testing.onnx.small_models import fill_folder

SECONDS_MAX: Final = 20.0
"""Longest time of a mutation before it counts as hung; the worker's own limit is lower."""

START_SECONDS: Final = 120.0
"""Longest time in which a child reads its cases."""

EXAMPLES_MAX: Final = 5
"""Largest number of mutations that a finding lists."""


@dataclass(slots=True)
class Finding:
    """Forbidden outcomes at one place in the code."""

    count: int = 0
    numbers: list[int] = field(default_factory=list)
    case: str = ""
    changes: list[str] = field(default_factory=list)
    text: str = ""


@dataclass(slots=True)
class Report:
    """Results of a run."""

    seed: str
    next: int = 0
    """Number of the next mutation to run."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Counts of ``ran``, ``finding``, and ``refused`` by class of error."""
    findings: dict[str, Finding] = field(default_factory=dict)
    seconds: float = 0.0

    def take(self, result: dict[str, Any]) -> None:
        """Count a result.

        Args:
            result: Result of ``fuzz_worker``.
        """
        refused = result["outcome"] == "refused"
        outcome = f"refused: {result['key']}" if refused else result["outcome"]
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if result["outcome"] == "finding":
            found = self.findings.setdefault(
                result["key"],
                Finding(0, [], result["case"], result["changes"], result["text"]),
            )
            found.count += 1
            if len(found.numbers) < EXAMPLES_MAX:
                found.numbers.append(result["number"])
        self.next = result["number"] + 1


class Child:
    """A process of ``fuzz_worker``."""

    def __init__(self, cases: Path, folder: Path, seed: str, first: int, count: int) -> None:
        """Start the process."""
        self.noise = folder / "noise"
        beside = folder / "outer" / "model"
        beside.mkdir(parents=True)
        fill_folder(beside)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        module = "walle_stream.testing.onnx.fuzz_worker"
        given = [str(each) for each in (cases, beside, self.noise, seed, first, count)]
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", module, *given], stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdout is not None  # noqa: S101
        self._output: IO[bytes] = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the objects that the process writes, one per line, until it ends.

        Raises:
            TimeoutError: The process hangs.
        """
        rest = b""
        limit = START_SECONDS
        while True:
            if not self._selector.select(limit):
                raise TimeoutError
            data = self._output.read()
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                limit = SECONDS_MAX
                yield json.loads(line)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process, or end it.

        Returns:
            Its exit status and the end of its output.
        """
        for number in (signal.SIGABRT, signal.SIGKILL):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
                break
            self._process.send_signal(number)  # SIGABRT prints the stack
        status = self._process.wait()
        self._selector.close()
        self._output.close()
        text = self.noise.read_text(errors="replace") if self.noise.exists() else ""
        return status, text[-4000:]


def fuzz(
    cases: Path, report: Report, count: int, progress: float = 0.0, json_path: Path | None = None
) -> None:
    """Run mutations.

    Args:
        cases: File of cases, see ``testing.onnx.cases``.
        report: Report to continue and to fill.
        count: Number after the last mutation.
        progress: Seconds between progress lines on stderr and writes of the report; 0 for none.
        json_path: File for the report meanwhile.

    Raises:
        RuntimeError: A child cannot start, or a mutation cannot be made.
    """
    start, told = time.monotonic() - report.seconds, time.monotonic()
    while report.next < count:
        begun, timed_out = -1, False
        with tempfile.TemporaryDirectory() as folder:
            child = Child(cases, Path(folder), report.seed, report.next, count)
            try:
                for line in child.lines():
                    if "broken" in line:
                        raise RuntimeError(f"mutation {begun} cannot be created: {line['broken']}")
                    begun = line.get("begins", begun)
                    if "outcome" in line:
                        report.take(line)
                    report.seconds = time.monotonic() - start
                    if progress and time.monotonic() - told > progress:
                        told = time.monotonic()
                        _tell(report, count, json_path)
            except TimeoutError:
                timed_out = True
            status, text = child.end()
        if report.next >= count:
            break
        if begun != report.next:
            raise RuntimeError(f"the child ended with {status} before it began: {text}")
        kind = "hangs" if timed_out else f"ends its process with {status}"
        place = next((each.strip() for each in text.splitlines() if "engine" in each), "")
        report.take(
            {
                "number": begun, "outcome": "finding", "key": f"{kind} {place}", "case": "?",
                "changes": [], "text": text,
            }
        )  # fmt: skip
    report.seconds = time.monotonic() - start


def _tell(report: Report, count: int, path: Path | None) -> None:
    found = sum(each.count for each in report.findings.values())
    line = f"{report.next} of {count}, {report.seconds:.0f} s, {found} findings"
    print(line, file=sys.stderr, flush=True)  # noqa: T201  # progress of a command
    if path is not None:
        write_report(report, path)


def write_report(report: Report, path: Path) -> None:
    """Write a report atomically."""
    findings = {
        key: {
            "count": each.count, "numbers": each.numbers, "case": each.case,
            "changes": each.changes, "text": each.text,
        }
        for key, each in report.findings.items()
    }  # fmt: skip
    made = {
        "format": 1, "seed": report.seed, "next": report.next,
        "seconds": round(report.seconds, 1),
        "outcomes": dict(sorted(report.outcomes.items())), "findings": findings,
    }  # fmt: skip
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(json.dumps(made, indent=1) + "\n")
    part.replace(path)


def read_report(path: Path, seed: str) -> Report:
    """Read a report to continue.

    Args:
        path: The file; if it is missing, the report is new.
        seed: Seed of the run.

    Raises:
        ValueError: The report has another seed or format.
    """
    if not path.exists():
        return Report(seed)
    made = json.loads(path.read_text())
    if made["format"] != 1 or made["seed"] != seed:
        raise ValueError(f"{path} has another seed: give --seed {made['seed']}, or another file")
    findings = {key: Finding(**each) for key, each in made["findings"].items()}
    return Report(seed, made["next"], made["outcomes"], findings, made["seconds"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 without findings, else 1.
    """
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=2000, help="number of mutations, with earlier ones"
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--cases", type=Path, help="file of cases, written if missing; default: a temporary file"
    )
    parser.add_argument("--json", type=Path, help="file of the report, to continue and to write")
    parser.add_argument("--only", type=int, help="run only this mutation, in this process")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        cases = given.cases or Path(folder) / "cases.zip"
        if not cases.exists():
            made = [sys.executable, "-W", "ignore", "-m", "walle_stream.testing.onnx.cases"]
            subprocess.run([*made, str(cases)], check=True, capture_output=True)  # noqa: S603
        if given.only is not None:
            return _run_one(cases, given.seed, given.only, Path(folder))
        report = read_report(given.json, given.seed) if given.json else Report(given.seed)
        try:
            fuzz(cases, report, given.count, 10.0, given.json)
        finally:
            if given.json:
                write_report(report, given.json)
    for name, count in sorted(report.outcomes.items()):
        print(f"{count:8} {name}")  # noqa: T201  # a command
    for key, each in report.findings.items():
        print(f"{key}: {each.count} times, --only {each.numbers[0]}")  # noqa: T201  # a command
    return 1 if report.findings else 0


def _run_one(cases: Path, seed: str, number: int, folder: Path) -> int:
    from walle_stream.testing.onnx import fuzz_worker  # noqa: PLC0415  # only used here

    mutation = fuzz_worker.Corpus(cases).mutation(seed, number)
    beside = folder / "outer" / "model"
    beside.mkdir(parents=True)
    fill_folder(beside)
    print(f"{mutation.case} on {mutation.backend}: {mutation.changes}")  # noqa: T201  # a command
    result = fuzz_worker.run_mutation(mutation, beside)
    print(f"{result['outcome']} {result['key']}\n{result['text']}")  # noqa: T201  # a command
    return int(result["outcome"] == "finding")


if __name__ == "__main__":
    sys.exit(main())
