"""A campaign over the release platform: lives, each in a world of its own, all checked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from walle_deploy.testing.chaos.devices import event_lines
from walle_deploy.testing.chaos.life import Life
from walle_deploy.testing.chaos.plan import WorldPlan
from walle_deploy.testing.chaos.world import MARK, World, source_settings
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.errors import ChaosError
from walle_stream.testing.chaos import processes
from walle_stream.testing.chaos.report import (
    FaultReport,
    Mismatch,
    PartReport,
    these_versions,
    this_machine,
)

_POSTGRES_SHARE: Final = 4
"""One life in this many runs on PostgreSQL, if PostgreSQL is installed."""
_RUN_S: Final = 120.0
_PROOF: Final = (
    "every device on the one version that the policy says, whole and signed; audit log and "
    "releases hold; no event lost"
)

type OnKill = Callable[[FaultReport], None]
"""Called after every kill, and at the start of a life."""


class ReleaseCampaign:
    """One campaign in one folder. Use once."""

    def __init__(self, plan: WorldPlan, folder: Path, on_kill: OnKill | None = None) -> None:
        """Take a folder.

        Args:
            plan: Plan of each life.
            folder: Made here; a life with a finding stays in it.
            on_kill: See ``OnKill``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder.resolve()
        self._plan = plan
        self._on_kill = on_kill or (lambda _report: None)
        date = datetime.fromtimestamp(wall_ms() / 1_000, UTC)
        self.report = FaultReport(
            pipeline="shop",
            seed=plan.seed,
            date=f"{date:%Y-%m-%d}",
            machine=this_machine(),
            versions=these_versions(),
            parts=[],
            proof=_PROOF,
        )
        """The report so far."""

    def run(self, kills: int) -> FaultReport:
        """Run lives until all kills are done, or a finding; blocks.

        Returns:
            The kills and the findings.

        Raises:
            ChaosError: A process hung, or ended by itself.
        """
        self._clear()
        reference = self.reference()
        lives = -(-kills // self._plan.kills)
        postgres = find_postgres()
        stores = [
            "postgresql" if postgres and life % _POSTGRES_SHARE == 0 else "sqlite"
            for life in range(1, lives + 1)
        ]
        quotas = [kills // lives + (life < kills % lives) for life in range(lives)]
        self.report.parts = [
            PartReport(
                target=name, wanted=sum(q for q, s in zip(quotas, stores, strict=True) if s == name)
            )
            for name in dict.fromkeys(stores)
        ]
        parts = {part.target: part for part in self.report.parts}
        shots = 0
        try:
            for life, (name, quota) in enumerate(zip(stores, quotas, strict=True), 1):
                shots = self._live(life, parts[name], shots, quota, reference)
                if self.report.mismatches:
                    break
        finally:
            self._clear()
        return self.report

    def _live(
        self,
        number: int,
        part: PartReport,
        shots: int,
        kills: int,
        reference: Mapping[str, Sequence[bytes]],
    ) -> int:
        began_ms = monotonic_ms()
        folder = self._folder / f"life-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        with ExitStack() as stack:
            address = ""
            programs = find_postgres() if part.target == "postgresql" else None
            if programs is not None:
                address = stack.enter_context(TemporaryPostgres(programs)).url
            part.lives += 1
            self._on_kill(self.report)
            world = World(self._plan, folder, address, str(self._folder), number)
            life = Life(world, part, shots, lambda: self._on_kill(self.report))
            stack.callback(life.close)
            problems = life.run(kills, reference)
        part.wall_s += (monotonic_ms() - began_ms) / 1_000
        part.mismatches += [Mismatch(folder.name, each) for each in problems]
        if not problems:
            shutil.rmtree(folder)
        return life.shots

    def reference(self) -> Mapping[str, Sequence[bytes]]:
        """Run the events once, without installations and kills; blocks.

        Returns:
            The results that depend on the events alone.

        Raises:
            ChaosError: The run failed.
        """
        data_dir = self._folder / "reference"
        shutil.rmtree(data_dir, ignore_errors=True)
        command = [sys.executable, "-P", "-m", "walle_stream.cli", "run", "shop", "--json"]
        for setting in source_settings(self._plan):
            command += ["--set", setting]
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, "--data-dir", str(data_dir)],
            env={**os.environ, "PYTHONHASHSEED": "0", MARK: str(self._folder)},
            capture_output=True,
            timeout=_RUN_S,
            check=False,
        )
        if done.returncode:
            text = done.stderr.decode(errors="replace").strip()
            raise ChaosError(f"the run without kills ended with {done.returncode}: {text}")
        return event_lines(data_dir)

    def _clear(self) -> None:
        """Kill processes that an earlier, killed campaign left running.

        Raises:
            ChaosError: A process does not end.
        """
        for process in processes.with_environment(MARK, str(self._folder)):
            if process.pid != os.getpid():
                processes.kill(process)
                if not processes.await_end(process, _RUN_S):
                    raise ChaosError(f"process {process.pid} of an earlier campaign does not end")
