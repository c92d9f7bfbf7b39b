"""The report format of fault campaigns, for programs and for people.

It is JSON with an integer ``format`` and a part per target. ``by_phase`` counts kills by the phase
of the process: ``at NAME`` for a kill at a crash point, ``after NAME`` for a random kill.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

REPORT_FORMAT: Final = 1
"""Version of the layout."""

_BAR: Final = 40
_PACKAGES: Final = ("walle-stream", "rocksdict", "msgspec")


class Mismatch(msgspec.Struct, frozen=True):
    """A life whose results differ from those of the unkilled run."""

    life: str
    """Folder of its data directory, which is kept."""
    text: str
    """The difference, in one line."""


class PartReport(msgspec.Struct, kw_only=True):
    """Results of one target."""

    target: str
    wanted: int
    """Number of kills in the plan."""
    kills: int = 0
    """Kills that count: the data directory had some commits, but not all."""
    not_counted: int = 0
    lives: int = 0
    runs: int = 0
    gave_up: int = 0
    """Runs that ended with an error after kills of their parts; the next run continued."""
    by_phase: dict[str, int] = {}
    by_role: dict[str, int] = {}
    faults: dict[str, int] = {}
    """Counts of faults other than kills, by role."""
    parts_ended: dict[str, int] = {}
    """Parts that ended in an allowed way after faults, with counts, e.g. ``host: 12``."""
    mismatches: list[Mismatch] = []
    wall_s: float = 0.0

    def count(self, role: str, phase: str) -> None:
        """Count a kill."""
        self.kills += 1
        self.by_role[role] = self.by_role.get(role, 0) + 1
        self.by_phase[phase] = self.by_phase.get(phase, 0) + 1


class FaultReport(msgspec.Struct, kw_only=True):
    """Results of a campaign, with the data to repeat it."""

    format: int = REPORT_FORMAT
    pipeline: str
    seed: int
    date: str
    """Day of the start, UTC."""
    machine: dict[str, str | int]
    versions: dict[str, str]
    resumes: int = 0
    """Number of times that the campaign itself was stopped or killed and resumed."""
    parts: list[PartReport]
    proof: str = "features and canonical state: the bytes of the unkilled run"
    """The property that held at the end of every life."""

    @property
    def kills(self) -> int:
        """Counted kills of all parts."""
        return sum(part.kills for part in self.parts)

    @property
    def mismatches(self) -> list[Mismatch]:
        """Mismatches of all parts."""
        return [mismatch for part in self.parts for mismatch in part.mismatches]

    def to_json(self) -> bytes:
        """Return the report as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"


def this_machine() -> dict[str, str | int]:
    """Return a report's data of the machine."""
    return {"processor": platform.machine(), "cores": os.cpu_count() or 1}


def these_versions() -> dict[str, str]:
    """Return a report's versions of Python and packages."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from source"
    return found


def render(report: FaultReport) -> str:
    """Return the report as text: totals, and a histogram per part."""
    lines = []
    for part in report.parts:
        lines.append(
            f"{part.target}: {part.kills} of {part.wanted} kills counted ({part.not_counted} more "
            f"did not) in {part.lives} lives, {part.runs} runs, {part.wall_s:.0f} s"
        )
        for counts in (part.by_role, part.faults, part.parts_ended, part.by_phase):
            widest = max(counts.values(), default=1)
            for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
                lines.append(f"  {name:<22} {count:>4} {'#' * max(1, count * _BAR // widest)}")
    if report.mismatches:
        lines += [f"DIFFERENT: {each.life}: {each.text}" for each in report.mismatches]
    else:
        lines.append(report.proof)
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    lines.append(
        f"seed {report.seed}, {report.machine['cores']} cores {report.machine['processor']}, "
        f"{versions}, {report.date}, resumed {report.resumes} times"
    )
    return "\n".join(lines)
