"""Shared code of campaigns on the command line: progress and end."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.testing.chaos.report import FaultReport, render

_LINES: Final = 20


class KillProgress:
    """Progress of kills: a rewritten line in a terminal, else some twenty lines. For one thread."""

    def __init__(self, wanted: int) -> None:
        """Start the clock for ``wanted`` kills."""
        self._wanted = wanted
        self._step = max(1, wanted // _LINES)
        self._shown = -1
        self._started_ms = monotonic_ms()
        self._before = -1

    def show(self, report: FaultReport) -> None:
        """Print the progress.

        Args:
            report: Report so far. Kills in the first report belong to an earlier process.
        """
        done = report.kills
        if self._before < 0:
            self._before = done
        line = f"{done}/{self._wanted} kills, life {sum(each.lives for each in report.parts)}"
        if done > self._before:
            each_ms = (monotonic_ms() - self._started_ms) / (done - self._before)
            line += f", {each_ms * max(0, self._wanted - done) / 60_000:.0f} min to go"
        if sys.stderr.isatty():
            print(f"\r{line} ", end="" if done < self._wanted else "\n", file=sys.stderr)
        elif done // self._step > self._shown:
            self._shown = done // self._step
            print(line, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """Return a number from 1; a type for argparse.

    Raises:
        argparse.ArgumentTypeError: The text is no such number.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)


def end_campaign(report: FaultReport, json: Path | None, folder: Path, *, is_kept: bool) -> int:
    """Write and print a report, and remove a folder that is not needed any more.

    Args:
        report: Report of the campaign.
        json: File for the report as JSON, or None.
        folder: Folder of the campaign.
        is_kept: Whether to keep the folder, because the user named it.

    Returns:
        The exit code; 1 if a life differed.
    """
    if json:
        json.write_bytes(report.to_json())
    print(render(report))
    if report.mismatches:
        print(f"chaos: the life that differed is in {folder}", file=sys.stderr)
        return 1
    if not is_kept:
        shutil.rmtree(folder)
    return 0
