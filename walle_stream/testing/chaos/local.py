"""``walle run`` as a target: one process and its process VMs.

Roles: ``run`` is the process itself, killed at crash points or random moments. ``vm`` is a child
that runs scripts, killed at random moments. Children exist for tasks with ``isolation: process``,
and for a while after a kill in the middle of a call (``vm.containment``).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from walle_stream.app.queries.query import RunState, canonical_state, features_lines, run_state
from walle_stream.app.resources import find_definition
from walle_stream.errors import CampaignError, ChaosError, StoreError, VmError
from walle_stream.faults import CRASH_POINTS
from walle_stream.testing.chaos import processes
from walle_stream.testing.chaos.plan import ChaosPlan
from walle_stream.testing.chaos.targets import Role, RunEnd

MARK: Final = "WALLE_CHAOS"
"""Environment variable of every process of a campaign: the campaign's folder."""

_LOOK_S: Final = 0.002
_END_TIMEOUT_S: Final = 30.0
_TEXT_MAX: Final = 2_000
VM_KILLS_MAX: Final = 2
"""Kills of VMs that one run must survive.

A device whose runs end their VM three times in a process is quarantined there
(``limits.strikes``), so a third kill could rightly change the features."""

_OPTIONAL: Final = {"services": ("reply.before", "reply.after"), "sinks": ("sink.after",)}
"""Crash points that exist only with a section of the definition, by section."""


class LocalTarget:
    """A pipeline as a user runs it, by ``walle run``."""

    vm_weight = 0.2
    """Weight of a VM against 1 for the run; low, since process VMs are rare here."""

    batch_events = 20
    """Default batch size: a small one makes many commits for kills to hit."""

    def __init__(self, plan: ChaosPlan, folder: Path) -> None:
        """Prepare a target.

        Args:
            plan: Plan of the campaign.
            folder: For the phase file and the output of the runs.
        """
        self._plan = plan
        self._folder = folder
        self._file = self.definition(find_definition(plan.pipeline))

    def definition(self, file: Path) -> Path:
        """Return the definition to run."""
        return file

    @property
    def roles(self) -> Sequence[Role]:
        """The run and its VMs."""
        specs = [each.get("spec") or {} for each in documents(self._file)]
        others = {
            point
            for key, of_key in _OPTIONAL.items()
            for point in of_key
            if not any(key in spec for spec in specs)
        }
        points = tuple(point for point in CRASH_POINTS if point not in others)
        run = Role("run", ends_run=True, points=points)
        vm = Role("vm", ends_run=False, weight=self.vm_weight, kills_max=VM_KILLS_MAX)
        return run, vm

    def clear(self) -> None:
        """Kill every process that carries the folder's mark.

        Raises:
            ChaosError: A process does not end.
        """
        for process in processes.with_environment(MARK, str(self._folder)):
            if process.pid != os.getpid():
                processes.kill(process)
                if not processes.await_end(process, _END_TIMEOUT_S):
                    raise ChaosError(
                        f"process {process.pid} of the previous campaign does not end: kill it, "
                        "then resume"
                    )

    def start(self, data_dir: Path, role: str = "", crash: str = "") -> "LocalRunning":
        """Start ``walle run``; see ``Target.start``.

        Args:
            data_dir: Value of ``--data-dir``.
            role: ``run``, the only role with crash points, or empty.
            crash: ``POINT:VISIT``.
        """
        phase_file = self._folder / "phase"
        phase_file.write_bytes(b"\0")
        environ = {**self.environ(), "WALLE_PHASE_FILE": str(phase_file)}
        if role:
            environ["WALLE_CRASH"] = crash
        process, said = self.run_walle(data_dir, environ)
        return LocalRunning(process, phase_file, said, is_armed=bool(role))

    def environ(self) -> dict[str, str]:
        """Return the environment of every process of the campaign."""
        return {**os.environ, "PYTHONHASHSEED": "0", MARK: str(self._folder)}

    def run_walle(
        self, data_dir: Path, environ: Mapping[str, str], *arguments: str
    ) -> "tuple[subprocess.Popen[bytes], Path]":
        """Start ``walle run``; return its process and the file of its output.

        Args:
            data_dir: Value of ``--data-dir``.
            environ: Its complete environment.
            arguments: More arguments of the command line.
        """
        command = [sys.executable, "-P", "-m", "walle_stream.cli", "run", str(self._file)]
        batches = f"spec.runtime.batchEvents={self.batch_events}"
        for override in (batches, *self._plan.overrides):
            command += ["--set", override]
        command += ["--data-dir", str(data_dir), "--json", "--hosts", str(self._plan.hosts)]
        command += arguments
        said = self._folder / "said.txt"
        # a file, since an unread pipe would block the process
        with said.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return process, said

    def standing(self, data_dir: Path) -> RunState | None:
        """Return the progress of the runs; None before the data directory is complete."""
        try:
            return run_state(data_dir)
        except StoreError:
            return None

    def outcome(self, data_dir: Path) -> Mapping[str, Sequence[bytes]]:
        """Return features and canonical state."""
        return {
            "features": list(features_lines(data_dir)),
            "state": list(canonical_state(data_dir)),
        }


class IsolatedTarget(LocalTarget):
    """A ``LocalTarget`` with ``isolation: process`` for every task in the pipeline's file."""

    vm_weight = 1.5

    def definition(self, file: Path) -> Path:
        """Write the changed definition, with links to its neighbouring files.

        Raises:
            CampaignError: The definition has no task.
        """
        found = documents(file)
        tasks = [each for each in found if each.get("kind") == "Task"]
        if not tasks:
            raise CampaignError(
                f"{file} holds no document of kind Task: the target 'isolated' needs the tasks in "
                "the pipeline's file"
            )
        for task in tasks:
            task["spec"]["isolation"] = "process"
        folder = self._folder / "isolated"
        folder.mkdir(exist_ok=True)
        for path in file.resolve().parent.iterdir():
            link = folder / path.name
            if path.name != file.name and not link.is_symlink():
                link.symlink_to(path)
        copy = folder / file.name
        copy.write_text(yaml.safe_dump_all(found, allow_unicode=True, sort_keys=False))
        return copy


class LocalRunning:
    """A started ``walle run``. For one thread."""

    gives_up_with = VmError.exit_code
    """Exit code that is allowed after kills of parts, such as two VMs in a row during their
    start."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", phase_file: Path, said: Path, *, is_armed: bool
    ) -> None:
        """Take over a process.

        Args:
            process: The process, which this object reaps.
            phase_file: See ``walle_stream.faults``.
            said: File of its output.
            is_armed: Whether the process may kill itself.
        """
        self._process = process
        self._phase_file = phase_file
        self._said = said
        self._may_be_killed = is_armed
        self._parts_killed = 0

    def await_life(self, timeout_s: float) -> None:
        """Block until the first crash point was passed; see ``Running``."""
        left = int(timeout_s / _LOOK_S)
        while left > 0 and not self.phase() and self.await_end(_LOOK_S) is None:
            left -= 1

    def await_end(self, timeout_s: float) -> RunEnd | None:
        """Block until the run has ended; see ``Running``."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if code == 0:
            return RunEnd("done")
        if code == -signal.SIGKILL and self._may_be_killed:
            return RunEnd("killed")
        text = self._said.read_text(errors="replace")[-_TEXT_MAX:].strip()
        is_allowed = code == self.gives_up_with and self._parts_killed > 0
        return RunEnd("gave up" if is_allowed else "failed", f"exit status {code}: {text}")

    def await_crash(self, timeout_s: float) -> bool:
        """Block until the run has ended; return whether it died at its crash point.

        Args:
            timeout_s: Longest wait.
        """
        end = self.await_end(timeout_s)
        return end is not None and end.kind == "killed"

    def kill(self, role: str, pick: int) -> bool:
        """Send SIGKILL to the run or to a VM; see ``Running``.

        Args:
            role: ``run`` or ``vm``.
            pick: Any number; it selects a VM.
        """
        if self._process.poll() is not None:
            return False
        if role == "run":
            self._may_be_killed = True
            self._process.kill()
            return True
        found = processes.children_of(self._process.pid)
        if not found or not processes.kill(found[pick % len(found)]):
            return False
        self._parts_killed += 1
        return True

    def phase(self) -> str:
        """Return the crash point passed last; empty before the first."""
        number = self._phase_file.read_bytes()[0]
        return CRASH_POINTS[number - 1] if number else ""

    def close(self) -> None:
        """Kill the run if it is alive and reap it."""
        self._process.kill()
        self._process.wait(_END_TIMEOUT_S)


def documents(file: Path) -> list[dict[str, Any]]:
    """Return the YAML documents of a definition, unchecked.

    Raises:
        CampaignError: The file cannot be read.
    """
    try:
        return [each for each in yaml.safe_load_all(file.read_text()) if isinstance(each, dict)]
    except (OSError, yaml.YAMLError) as error:
        raise CampaignError(f"{file} cannot be read ({error}): walle validate {file}") from error
