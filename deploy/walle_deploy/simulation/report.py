"""Results of a simulation."""

from typing import Any, Literal

import msgspec

type Status = Literal["passed", "failed", "not_simulated"]
"""Result of a kind of devices. A kind that was not simulated has not passed."""


class FailedRun(msgspec.Struct, frozen=True):
    """The first run that failed."""

    device: str
    event: int
    """Line of the recorded events that woke the run, from 1. The last line, if only their end woke
    it."""
    line: str
    """The line itself, cut if it is long."""
    error: str
    message: str
    """Message with the script's file and line."""


class VersionRun(msgspec.Struct):
    """Results of one version on the recorded events."""

    version: str
    runs: int = 0
    failures: int = 0
    failure_classes: dict[str, int] = {}
    strikes: int = 0
    """Runs that had to be stopped."""
    crashes: int = 0
    """Runs that ended their VM or the whole process, or were refused after such a run."""
    latency_us: dict[int, int] = {}
    """Runs by bucket of their time (``model.health.GAMMA``); each run is a call of its own."""
    output_bytes: dict[int, int] = {}
    """Successful runs by bucket of emitted bytes, plus 1."""
    first_failure: FailedRun | None = None
    ended: str = ""
    """Reason why the version did not reach the end of the events; empty if it did."""


class Drift(msgspec.Struct, frozen=True):
    """Differences between the features of both versions; runs match by device and position."""

    runs: int
    changed: int
    """Runs that succeeded in both versions, with different features."""
    only_one: int
    """Runs that succeeded in only one version."""

    @property
    def ratio(self) -> float:
        """Share of runs that differ, 0 to 1."""
        return (self.changed + self.only_one) / self.runs if self.runs else 0.0


class KindReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one kind of devices."""

    kind: str
    status: Status
    reasons: tuple[str, ...] = ()
    """Reasons why the kind is not ``passed``."""
    candidate: VersionRun | None = None
    previous: VersionRun | None = None
    drift: Drift | None = None


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all kinds."""

    task: str
    version: str
    previous_version: str = ""
    kinds: tuple[KindReport, ...]

    @property
    def status(self) -> Status:
        """``failed`` if any kind failed, ``passed`` only if all passed."""
        statuses = {kind.status for kind in self.kinds}
        if "failed" in statuses or not statuses:
            return "failed"
        return "not_simulated" if "not_simulated" in statuses else "passed"

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for each problem, with its kind."""
        return tuple(f"{kind.kind}: {reason}" for kind in self.kinds for reason in kind.reasons)

    @property
    def text(self) -> str:
        """The whole result in one line, for people."""
        name = f"{self.task}@{self.version}"
        if self.status == "passed":
            return f"{name} passed on {len(self.kinds)} kinds of devices"
        wrong = sum(kind.status != "passed" for kind in self.kinds)
        verb = "failed" if self.status == "failed" else "was not simulated"
        head = f"{name} {verb} on {wrong} of {len(self.kinds)} kinds of devices"
        return f"{head}: {'; '.join(self.reasons)}"


def as_json(report: SimulationReport) -> dict[str, Any]:
    """Return a report as plain values, including its properties."""
    plain: dict[str, Any] = msgspec.to_builtins(report, str_keys=True)
    for kind, source in zip(plain["kinds"], report.kinds, strict=True):
        if source.drift is not None:
            kind["drift"]["ratio"] = source.drift.ratio
    return {"status": report.status, **plain, "text": report.text}
