"""The one report format of fault campaigns, for machines and for people.

JSON with an integer ``format``; a part per target. ``by_phase`` says what the
process was doing: ``at NAME`` for a kill at a crash point, ``after NAME`` for
one at a random moment.
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
    """A life that did not end with the bytes of the run that nobody killed."""

    life: str
    """Folder of its data directory, which is kept."""
    text: str
    """What differs, one line."""


class PartReport(msgspec.Struct, kw_only=True):
    """What happened to one target."""

    target: str
    wanted: int
    """Kills that the plan asks for."""
    kills: int = 0
    """Those that count: the data directory had commits, and not yet all of them."""
    not_counted: int = 0
    lives: int = 0
    runs: int = 0
    gave_up: int = 0
    """Runs that ended with an error after kills of their parts; the next went on."""
    by_phase: dict[str, int] = {}
    by_role: dict[str, int] = {}
    faults: dict[str, int] = {}
    """Faults beside the kills, by role."""
    parts_ended: dict[str, int] = {}
    """Parts and how they ended, where they may after faults, e.g. ``host: 12``."""
    mismatches: list[Mismatch] = []
    wall_s: float = 0.0

    def count(self, role: str, phase: str) -> None:
        """Count a kill."""
        self.kills += 1
        self.by_role[role] = self.by_role.get(role, 0) + 1
        self.by_phase[phase] = self.by_phase.get(phase, 0) + 1


class FaultReport(msgspec.Struct, kw_only=True):
    """A campaign, with what is needed to repeat it."""

    format: int = REPORT_FORMAT
    pipeline: str
    seed: int
    date: str
    """Day of the start, UTC."""
    machine: dict[str, str | int]
    versions: dict[str, str]
    resumes: int = 0
    """How often the campaign itself was stopped or killed, and went on."""
    parts: list[PartReport]
    proof: str = "features and canonical state: the bytes of the run that nobody killed"
    """What held at the end of every life."""

    @property
    def kills(self) -> int:
        """Counted kills of all parts."""
        return sum(part.kills for part in self.parts)

    @property
    def mismatches(self) -> list[Mismatch]:
        """Those of all parts; empty is what everyone hopes for."""
        return [mismatch for part in self.parts for mismatch in part.mismatches]

    def to_json(self) -> bytes:
        """Return the report as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"


def this_machine() -> dict[str, str | int]:
    """Return what a report says of the machine."""
    return {"processor": platform.machine(), "cores": os.cpu_count() or 1}


def these_versions() -> dict[str, str]:
    """Return what a report says of Python and packages."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from source"
    return found


def render(report: FaultReport) -> str:
    """Return the report for a person: totals, and a histogram per part."""
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
