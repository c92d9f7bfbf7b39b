"""A campaign: lives that are killed again and again, each compared at its end.

A kill counts only if the data directory had some commits but not all. Every step is in the ledger
before the next step begins. A resumed campaign first kills the processes that its killed
predecessor left running. That kill does not count, but every life must survive it.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.errors import CampaignError, ChaosError
from walle_stream.testing.chaos.aim import Shot, next_shot
from walle_stream.testing.chaos.ledger import Ledger, forget_ledger, lock_folder, read_ledger
from walle_stream.testing.chaos.outcome import difference
from walle_stream.testing.chaos.plan import ChaosPlan, PartPlan
from walle_stream.testing.chaos.report import (
    FaultReport,
    Mismatch,
    PartReport,
    these_versions,
    this_machine,
)
from walle_stream.testing.chaos.targets import Role, RunEnd, Running, Target, find_target

RUN_TIMEOUT_S: Final = 120.0
"""A run that takes longer hangs, which is a finding."""

type OnKill = Callable[[FaultReport], None]
"""Called after every kill, counted or not."""


class Campaign:
    """One campaign in one folder; see the package's docstring. For a single use."""

    def __init__(
        self,
        plan: ChaosPlan,
        folder: Path,
        *,
        is_resumed: bool = False,
        on_kill: OnKill | None = None,
    ) -> None:
        """Lock the folder and look for an earlier campaign in it.

        Args:
            plan: Plan of the campaign.
            folder: Folder for all files; made when missing. The data directory of a life that
                differed stays there.
            is_resumed: Continue the campaign in the folder, or begin if there is none.
            on_kill: See ``OnKill``; called in the thread of ``run``.

        Raises:
            CampaignError: The folder already has a campaign, or one with another plan; or a target
                of the plan does not exist.
        """
        for part in plan.parts:
            find_target(part.target)  # fail now and not hours later
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder.resolve()
        self._lock = lock_folder(self._folder)
        self._on_kill = on_kill or (lambda _report: None)
        try:
            self._ledger = _begin(plan, self._folder, is_resumed=is_resumed)
        except BaseException:
            os.close(self._lock)
            raise
        self._plan = plan
        self._roles: dict[str, Role] = {}
        self._since_ms = monotonic_ms()

    @property
    def report(self) -> FaultReport:
        """The report so far."""
        return self._ledger.report

    def run(self) -> FaultReport:
        """Kill until the plan's kills are counted, or a life differed; blocks.

        Returns:
            The report of kills and differences.

        Raises:
            ChaosError: A run hung, or ended neither done nor killed.
            CampaignError: A target does not fit the pipeline.
        """
        self._since_ms = monotonic_ms()
        ledger = self._ledger
        try:
            while ledger.part < len(self._plan.parts) and not ledger.report.mismatches:
                self._run_part()
            if not ledger.report.mismatches:
                forget_ledger(self._folder)
        finally:
            os.close(self._lock)
        return ledger.report

    def _run_part(self) -> None:
        ledger, folder = self._ledger, self._folder
        target = find_target(self._plan.parts[ledger.part].target)(self._plan, folder)
        target.clear()
        self._roles = {role.name: role for role in target.roles}
        _check_quotas(self._plan.parts[ledger.part], self._roles)
        self._tidy()
        reference = folder / "reference"
        try:
            self._live_lives(target, reference)
        finally:
            target.clear()
        if self._part.mismatches:
            return
        self._save()
        ledger.part += 1
        ledger.has_reference = False
        ledger.write(folder)
        _remove(reference)

    def _live_lives(self, target: Target, reference: Path) -> None:
        # until the part's kills are counted or a life differs
        ledger, folder = self._ledger, self._folder
        if not ledger.has_reference:
            _remove(reference)
            self._finish(target, reference)
            ledger.has_reference = True
            self._save()
        expected = target.outcome(reference)
        while self._part.kills < self._part.wanted:
            self._begin_life()
            data_dir = folder / f"life-{ledger.lives}"
            self._live(target, data_dir)
            text = difference(target.outcome(data_dir), expected)
            if text is not None:
                self._part.mismatches.append(Mismatch(data_dir.name, text))
                self._save()
                return
            ledger.is_alive = False
            self._save()
            _remove(data_dir)

    def _begin_life(self) -> None:
        if not self._ledger.is_alive:
            self._ledger.is_alive = True
            self._ledger.lives += 1
            self._part.lives += 1
            self._save()

    def _live(self, target: Target, data_dir: Path) -> None:
        while self._part.kills < self._part.wanted:
            if self._run_and_kill(target, data_dir).kind == "done":
                return
            standing = target.standing(data_dir)
            if standing is not None and standing.is_complete:
                break  # no kill can count now, and more kills could prevent the end for ever
        self._finish(target, data_dir)

    def _run_and_kill(self, target: Target, data_dir: Path) -> RunEnd:
        shot = self._draw(self._allowed({}), is_at_start=True)
        crash = f"{shot.point}:{shot.visit}" if shot.point else ""
        running = target.start(data_dir, shot.role if crash else "", crash)
        self._part.runs += 1
        survived: Counter[str] = Counter()
        try:
            while True:
                phase = self._shoot(running, shot)
                is_over = phase is None or self._roles[shot.role].ends_run
                end = running.await_end(RUN_TIMEOUT_S if is_over and phase is not None else 0.0)
                # a kill after the run's end hit nothing
                if phase is not None and not (end is not None and end.kind == "done"):
                    survived[shot.role] += end is None
                    self._note(target, data_dir, shot.role, phase)
                if end is not None:
                    return self._checked(end)
                if is_over and phase is not None:
                    raise ChaosError(f"a run outlived its own kill: see {data_dir}")
                allowed = self._allowed(survived)
                if self._part.kills >= self._part.wanted or not allowed:
                    return self._checked(running.await_end(RUN_TIMEOUT_S))
                shot = self._draw(allowed, is_at_start=False)
        finally:
            running.close()

    def _shoot(self, running: Running, shot: Shot) -> str | None:
        # returns the phase of the process that was hit; None without a hit
        if shot.point:
            if running.await_crash(RUN_TIMEOUT_S):
                return f"at {shot.point}"
            if running.await_end(0.0) is None:
                raise ChaosError(_HANGS)
            return None
        running.await_life(RUN_TIMEOUT_S)
        # wait longer after early kills: a slow machine might otherwise never reach a commit
        delay_s = shot.delay_s * _PATIENCE ** min(self._ledger.too_early, _PATIENCE_MAX)
        if running.await_end(delay_s) is None and running.kill(shot.role, self._ledger.shots):
            return f"after {running.phase()}" if running.phase() else "before any"
        return None

    def _allowed(self, survived: Mapping[str, int]) -> list[Role]:
        quotas, done = self._plan.parts[self._ledger.part].quotas, self._part.by_role
        return [
            role
            for name, role in self._roles.items()
            if (role.kills_max is None or survived.get(name, 0) < role.kills_max)
            and (not quotas or done.get(name, 0) < quotas.get(name, 0))
        ]

    def _draw(self, roles: list[Role], *, is_at_start: bool) -> Shot:
        shot = next_shot(self._plan, self._ledger.shots, roles, is_at_start=is_at_start)
        self._ledger.shots += 1
        return shot

    def _note(self, target: Target, data_dir: Path, role: str, phase: str) -> None:
        standing = target.standing(data_dir)
        has_begun = standing is not None and standing.commits > 0
        self._ledger.too_early = 0 if has_begun else self._ledger.too_early + 1
        if not self._roles[role].is_kill:
            self._part.faults[role] = self._part.faults.get(role, 0) + 1
        elif standing is not None and has_begun and not standing.is_complete:
            self._part.count(role, phase)
        else:
            self._part.not_counted += 1
        self._save()
        self._on_kill(self.report)

    def _finish(self, target: Target, data_dir: Path) -> None:
        running = target.start(data_dir)
        self._part.runs += 1
        try:
            end = running.await_end(RUN_TIMEOUT_S)
            if self._checked(end).kind != "done":
                raise ChaosError(f"the unkilled run did not end well: {end}")
        finally:
            running.close()

    def _checked(self, end: RunEnd | None) -> RunEnd:
        if end is None:
            raise ChaosError(_HANGS)
        if end.kind == "failed":
            raise ChaosError(f"a run ended neither done nor killed: {end.text}")
        self._part.gave_up += end.kind == "gave up"
        for name, times in end.parts_ended.items():
            self._part.parts_ended[name] = self._part.parts_ended.get(name, 0) + times
        return end

    @property
    def _part(self) -> PartReport:
        return self._ledger.report.parts[self._ledger.part]

    def _save(self) -> None:
        now_ms = monotonic_ms()
        self._part.wall_s = round(self._part.wall_s + (now_ms - self._since_ms) / 1000.0, 3)
        self._since_ms = now_ms
        self._ledger.write(self._folder)

    def _tidy(self) -> None:
        # remove lives that were over when the campaign was killed
        alive = f"life-{self._ledger.lives}" if self._ledger.is_alive else ""
        for path in self._folder.glob("life-*"):
            if path.name != alive:
                _remove(path)


_PATIENCE: Final = 1.3
_PATIENCE_MAX: Final = 20

_HANGS: Final = (
    f"a run hangs: it has not ended after {RUN_TIMEOUT_S:g} s; the data directory of the life "
    "is kept, run the pipeline on it to investigate"
)


def _begin(plan: ChaosPlan, folder: Path, *, is_resumed: bool) -> Ledger:
    found = read_ledger(folder)
    if found is None:
        parts = [PartReport(target=part.target, wanted=part.kills) for part in plan.parts]
        report = FaultReport(
            pipeline=plan.pipeline,
            seed=plan.seed,
            date=time.strftime("%Y-%m-%d", time.gmtime(wall_ms() / 1000)),
            machine=this_machine(),
            versions=these_versions(),
            parts=parts,
        )
        return Ledger(plan=plan, report=report)
    if not is_resumed:
        raise CampaignError(
            f"{folder} has a campaign already ({found.report.kills} of {found.plan.kills} kills): "
            "continue it with --resume, or give another --folder"
        )
    if found.plan != plan:
        old, new = msgspec.structs.asdict(found.plan), msgspec.structs.asdict(plan)
        names = ", ".join(name for name in old if old[name] != new[name])
        raise CampaignError(
            f"the campaign in {folder} has another plan ({names}): give the same arguments, or "
            "another --folder"
        )
    if found.report.mismatches:
        raise CampaignError(
            f"the campaign in {folder} is over, {found.report.mismatches[0].life} differed: "
            "investigate it, then give another --folder"
        )
    found.report.resumes += 1
    return found


def _check_quotas(part: PartPlan, roles: Mapping[str, Role]) -> None:
    unknown = ", ".join(sorted(part.quotas.keys() - roles.keys()))
    if unknown:
        raise CampaignError(
            f"the target {part.target!r} has no roles {unknown}: it has {', '.join(roles)}"
        )
    if part.quotas and sum(part.quotas.values()) != part.kills:
        raise CampaignError(
            f"the quotas of the target {part.target!r} add up to {sum(part.quotas.values())} "
            f"kills, not {part.kills}: make both equal"
        )


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
