"""What a simulation found."""

from typing import Any, Literal

import msgspec

type Status = Literal["passed", "failed", "not_simulated"]
"""Of a kind of devices. What was not simulated has not passed."""


class FailedRun(msgspec.Struct, frozen=True):
    """The first run that failed."""

    device: str
    event: int
    """Which line of the recorded events woke it, from 1; the last one for what only their end
    woke."""
    line: str
    """The line itself, its beginning if it is long."""
    error: str
    message: str
    """With the script's file and line."""


class VersionRun(msgspec.Struct):
    """What one version did on the recorded events."""

    version: str
    runs: int = 0
    failures: int = 0
    failure_classes: dict[str, int] = {}
    strikes: int = 0
    """Runs that had to be stopped."""
    crashes: int = 0
    """Runs that ended their VM or the whole process, or were not let begin after such."""
    latency_us: dict[int, int] = {}
    """Runs by bucket of their time (``model.health.GAMMA``); each run is a call of its own."""
    output_bytes: dict[int, int] = {}
    """Successful runs by bucket of emitted bytes, plus 1."""
    first_failure: FailedRun | None = None
    ended: str = ""
    """Why it did not come to the end of the events; empty when it did."""


class Drift(msgspec.Struct, frozen=True):
    """How the features of both versions differ; runs are matched by device and position."""

    runs: int
    changed: int
    """That succeeded in both, with other features."""
    only_one: int
    """That succeeded in one of them only."""

    @property
    def ratio(self) -> float:
        """Share of runs that are not the same, 0 to 1."""
        return (self.changed + self.only_one) / self.runs if self.runs else 0.0


class KindReport(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of devices."""

    kind: str
    status: Status
    reasons: tuple[str, ...] = ()
    """Why it is not ``passed``."""
    candidate: VersionRun | None = None
    previous: VersionRun | None = None
    drift: Drift | None = None


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """All kinds."""

    task: str
    version: str
    previous_version: str = ""
    kinds: tuple[KindReport, ...]

    @property
    def status(self) -> Status:
        """``failed`` if one failed, ``passed`` only if all passed."""
        statuses = {kind.status for kind in self.kinds}
        if "failed" in statuses or not statuses:
            return "failed"
        return "not_simulated" if "not_simulated" in statuses else "passed"

    @property
    def reasons(self) -> tuple[str, ...]:
        """A line for everything that is wrong, with its kind."""
        return tuple(f"{kind.kind}: {reason}" for kind in self.kinds for reason in kind.reasons)

    @property
    def text(self) -> str:
        """All of it in one line, for people."""
        name = f"{self.task}@{self.version}"
        if self.status == "passed":
            return f"{name} passed on {len(self.kinds)} kinds of devices"
        wrong = sum(kind.status != "passed" for kind in self.kinds)
        verb = "failed" if self.status == "failed" else "was not simulated"
        head = f"{name} {verb} on {wrong} of {len(self.kinds)} kinds of devices"
        return f"{head}: {'; '.join(self.reasons)}"


def as_json(report: SimulationReport) -> dict[str, Any]:
    """Return a report as plain values, with what its properties say."""
    plain: dict[str, Any] = msgspec.to_builtins(report, str_keys=True)
    for kind, source in zip(plain["kinds"], report.kinds, strict=True):
        if source.drift is not None:
            kind["drift"]["ratio"] = source.drift.ratio
    return {"status": report.status, **plain, "text": report.text}
