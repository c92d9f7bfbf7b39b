"""Views of releases in a terminal."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from walle_deploy.release.gates import Verdict
from walle_deploy.release.progress import Progress, shown_time

_UNAUTHENTICATED: Final = (
    "unauthenticated: devices need no proof of identity (docs/deploy/identity.md)"
)


def overview(releases: Sequence[Progress]) -> RenderableType:
    """Return a table of releases."""
    table = Table(box=None, pad_edge=False)
    is_open_mode = any(release.is_unauthenticated for release in releases)
    titles = ("release", "version", "stage", "percent", "devices", "since")
    for title in (*titles, *["evidence"] * is_open_mode):
        table.add_column(title)
    for release in releases:
        table.add_row(
            *(
                release.release,
                f"{release.task}@{release.version}",
                _stage(release),
                f"{release.percent:g} %",
            ),
            *(f"{release.known_devices.get(release.version, 0):,}", shown_time(release.since_ms)),
            *["unauthenticated" if release.is_unauthenticated else ""] * is_open_mode,
        )
    if is_open_mode:
        return Group(table, Text(f"evidence is {_UNAUTHENTICATED}"))
    return table


def detail(progress: Progress) -> RenderableType:
    """Return the full view of a release."""
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    rows = {
        "version": f"{progress.task}@{progress.version}",
        "before": progress.previous or "none",
        "stage": f"{_stage(progress)}, {progress.reach}",
        "since": shown_time(progress.since_ms),
        "why": progress.reason,
        "devices": ", ".join(
            f"{version}: {count:,}" for version, count in sorted(progress.known_devices.items())
        ),
        "last report": ", ".join(
            f"{version}: {shown_time(at_ms)}" for version, at_ms in progress.last_reports_ms.items()
        ),
        "unproven": _unproven(progress),
        "evidence": _UNAUTHENTICATED if progress.is_unauthenticated else "",
        "waits for": " and ".join(progress.waits_for),
        "revision": str(progress.revision),
        "can": ", ".join(progress.can),
    }
    for name, text in rows.items():
        if text:
            facts.add_row(name, Text(text))
    gates = Table(box=None, show_header=False, pad_edge=False)
    for verdict in progress.gates:
        # the bar shows the evidence as a share of the amount that would stop the release
        bar = ProgressBar(total=1.0, completed=min(1.0, verdict.evidence), width=20)
        gates.add_row(verdict.outcome, bar, Text(verdict.text))
        for line in _evidence(verdict):
            gates.add_row("", "", Text(line, style="dim"))
    title = Text(f"release {progress.release}", style="bold")
    return Group(title, facts, gates) if progress.gates else Group(title, facts)


def _evidence(verdict: Verdict) -> Iterator[str]:
    """Yield lines with the evidence of a gate."""
    for group, side in (("new", verdict.new), ("control", verdict.control)):
        if side is None:
            continue
        first = side.per_device_hour
        rate = f", {first} affected per device-hour" if first is not None else ""
        runs = f", {side.per_run} of the runs fail" if side.per_run is not None else ""
        devices = f"{side.devices:,} devices, {side.device_minutes:,} device-minutes"
        yield f"{group}: {devices}{rate}{runs}"
    for shift in verdict.shifts:
        yield f"{shift.what}: {shift.new} of new, {shift.control} of control"
    if verdict.beyond_tolerated is not None:
        control = verdict.beyond_control
        beside = "no control group" if control is None else f"{control:.0%} against control"
        yield f"evidence: {verdict.beyond_tolerated:.0%} against tolerated, {beside}"
    yield f"would decide: {verdict.would_decide}"


def step_line(progress: Progress) -> str:
    """Return the state of a release in one line."""
    why = f": {progress.reason}" if progress.reason else ""
    silent = (
        f"; hardly any device reports {' and '.join(progress.silent)}" if progress.silent else ""
    )
    return f"{shown_time(progress.since_ms):<20}  {_stage(progress)}, {progress.reach}{why}{silent}"


def _unproven(progress: Progress) -> str:
    bare, wrong = progress.bare_reports, progress.wrong_reports
    if not (bare or wrong):
        return ""
    return f"{bare:,} reports of devices without a receipt, {wrong:,} with an invalid one"


def _stage(progress: Progress) -> str:
    return progress.stage.replace("_", " ") + (" (paused)" if progress.is_paused else "")
