"""The loop that drives releases: it looks at health, runs simulations and rolls back.

One controller leads at a time, by a lease in the store on the database's clock; any number may
wait. A controller keeps no essential state in memory. If it is killed at any point, another one
continues from the store. Each change is made in one transaction, which also checks the lease.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from walle_deploy.model.health import ReleaseHealthQuery
from walle_deploy.release.commands import ReleaseCommands, read_state
from walle_deploy.release.events import RolledBack, Simulated, Tick
from walle_deploy.release.gates import judge
from walle_deploy.release.machine import AnyEvent, advance
from walle_deploy.release.memory import Memory, look
from walle_deploy.release.ports import HealthSource, SimulationResult, Simulator
from walle_deploy.release.state import OFFERED, ReleaseState
from walle_deploy.release.stored_health import put_memory, read_memory
from walle_deploy.store.port import LEADER, ReleaseStore
from walle_deploy.store.rows import StoredRelease
from walle_deploy.store.writer import WriteTransaction
from walle_stream.errors import ConflictError, WalleError
from walle_stream.faults import crash_point

CONTROLLER: Final = "controller"
"""Name of the controller in the audit log."""
LEASE_MS: Final = 10_000
BEHIND_MS: Final = 900_000
"""Time for which the clock may be behind a step's beginning before that step begins again."""

_PACKAGES_MAX: Final = 64
_log = logging.getLogger(__name__)


class _Running(NamedTuple):
    future: Future[SimulationResult]
    stop: threading.Event


class Controller:
    """Driver of the releases of a store."""

    def __init__(
        self,
        store: ReleaseStore,
        health: HealthSource,
        simulator: Simulator,
        lease_ms: int = LEASE_MS,
    ) -> None:
        """Make a controller; nothing happens before ``turn`` or ``run``.

        A turn renews the lease for ``lease_ms``; after a crash another controller waits that long.
        """
        self._store = store
        self._health = health
        self._simulator = simulator
        self._lease_ms = lease_ms
        self.is_retired: Callable[[str], bool] = lambda _: False
        """Whether a signed file was retired: devices then no longer take the version."""
        self._packages: dict[tuple[str, str], str] = {}
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._commands = ReleaseCommands(store, CONTROLLER)
        self._pool = ThreadPoolExecutor(1, "walle-simulation")
        self._behind_ms: dict[str, int] = {}
        """By release: since when the clock has been behind the beginning of its step."""
        self._running: dict[str, _Running] = {}

    def run(self, stop: threading.Event, every_s: float = 1.0) -> None:
        """Take turns until ``stop`` is set; a failed turn is logged and retried."""
        while not stop.is_set():
            try:
                self.turn()
            except WalleError as error:
                _log.warning("the release controller could not take a turn: %s", error)
            except Exception:  # noqa: BLE001 - the next turn must come, whatever this one met
                _log.exception("a turn of the release controller failed")
            stop.wait(every_s)

    def close(self) -> None:
        """Stop the simulations and give the lease back; a second call does nothing."""
        self._stop_simulations(set())
        self._pool.shutdown(wait=True, cancel_futures=True)
        with self._store.writing() as transaction:
            if transaction.take_lease(LEADER, self._owner, self._lease_ms):
                transaction.take_lease(LEADER, self._owner, 0)

    def turn(self) -> bool:
        """Look at every open release once if this controller leads, and return whether it does.

        The call blocks for I/O, but not for simulations.

        Raises:
            ServiceUnreachableError: The store does not answer.
        """
        with self._store.writing() as transaction:
            leads = transaction.take_lease(LEADER, self._owner, self._lease_ms)
            releases = transaction.releases(only_open=True) if leads else ()
            now_ms = transaction.now_ms()
        # nobody needs simulations of releases that ended, or that another controller now drives
        self._stop_simulations({release.release_id for release in releases})
        crash_point("turn.before")
        for stored in releases:
            try:
                self._take_on(stored, now_ms)
            except ConflictError as error:
                _log.info("release %s: %s", stored.release_id, error)  # the next turn sees it
            except WalleError as error:
                _log.warning("release %s waits: %s", stored.release_id, error)
            except Exception:  # noqa: BLE001 - the other releases must not wait for it
                _log.exception("release %s waits", stored.release_id)
        return leads

    def _take_on(self, stored: StoredRelease, now_ms: int) -> None:
        state = read_state(stored)
        event = self._event(stored, state, now_ms)
        # most turns change nothing and need no transaction
        if event is not None and advance(state, event) is not None:
            change = self._commands.apply(
                stored.release_id, lambda *_: event, stored.revision, self._refuse_follower
            )
            _log.info("release %s: %s", change.release_id, read_state(change).stage)

    def _event(self, stored: StoredRelease, state: ReleaseState, now_ms: int) -> AnyEvent | None:
        package = self._package(stored)
        if package and self.is_retired(package):
            return RolledBack(now_ms, f"{package} was retired: no device takes it any more")
        if state.stage == "simulation" and not state.is_simulated:
            return self._simulated(stored, state, now_ms) if state.paused_ms is None else None
        if state.stage not in OFFERED:
            return Tick(now_ms, why=state.reason)
        judgement = judge(state.release.spec.gates, self._look(stored, state))
        return Tick(
            now_ms,
            judgement.outcome,
            judgement.step_devices,
            judgement.why,
            judgement.exposure,
            self._is_behind(stored.release_id, max(state.step_ms, state.since_ms), now_ms),
        )

    def _is_behind(self, name: str, begun_ms: int, now_ms: int) -> bool:
        """Return whether the clock has been behind a step's beginning too long to recover."""
        if now_ms >= begun_ms:
            self._behind_ms.pop(name, None)
            return False
        # a step survives a clock that is behind for a moment
        return now_ms - self._behind_ms.setdefault(name, now_ms) >= BEHIND_MS

    def _package(self, stored: StoredRelease) -> str:
        """Return the name under which a release's package is signed, or "" if it is unknown."""
        key = stored.task, stored.version
        if key not in self._packages:
            with self._store.reading() as transaction:
                files = transaction.files(*key)
            if len(self._packages) >= _PACKAGES_MAX:
                self._packages.clear()
            self._packages[key] = files.shared[0].target if files and files.shared else ""
        return self._packages[key]

    def _look(self, stored: StoredRelease, state: ReleaseState) -> Memory:
        """Fold the counts since the last look, and store the result for the next look."""
        with self._store.reading() as reading:
            before = read_memory(reading, stored.release_id)
        query = ReleaseHealthQuery(
            release_id=stored.release_id,
            task=stored.task,
            version=stored.version,
            before=state.before,
            step_ms=state.step_ms,
            is_beta=state.stage == "beta",
            after=before.window,
        )
        health = self._health.release_health(query)
        gates, control = state.release.spec.gates, state.control_percent
        memory = look(before, gates, health, state.step_ms, control_percent=control)
        if memory != before:
            with self._store.writing() as transaction:
                # replacing the old memory counts no window twice, whichever controller leads
                self._refuse_follower(transaction)
                put_memory(transaction, stored.release_id, memory)
        return memory

    def _simulated(
        self, stored: StoredRelease, state: ReleaseState, now_ms: int
    ) -> Simulated | None:
        running = self._running.get(stored.release_id)
        if running is None:
            self._running[stored.release_id] = self._begun(stored, state)
            return None
        if not running.future.done():
            return None
        del self._running[stored.release_id]
        try:
            result = running.future.result()
        except WalleError as error:
            if error.is_retryable:
                raise
            result = SimulationResult(passed=False, why=f"the simulation failed: {error}")
        except Exception as error:  # noqa: BLE001 - or it would be tried in each turn
            _log.exception("the simulation of release %s failed", stored.release_id)
            why = f"the simulation failed: {type(error).__name__}: {error}"
            result = SimulationResult(passed=False, why=why)
        return Simulated(now_ms, result.passed, result.why)

    def _begun(self, stored: StoredRelease, state: ReleaseState) -> _Running:
        step, stop = state.release.spec.simulation, threading.Event()
        with self._store.reading() as transaction:
            files = transaction.files(stored.task, stored.version)
            before = transaction.files(stored.task, state.before)
        if step is None or files is None:
            raise ConflictError(f"{stored.task}@{stored.version} is not in the store")
        return _Running(
            self._pool.submit(self._simulator.simulate, files, before, step, stop), stop
        )

    def _stop_simulations(self, wanted: Collection[str]) -> None:
        for name in self._running.keys() - wanted:
            running = self._running.pop(name)
            running.stop.set()
            running.future.cancel()

    def _refuse_follower(self, transaction: WriteTransaction) -> None:
        if not transaction.take_lease(LEADER, self._owner, self._lease_ms):
            raise ConflictError("another release controller leads now")
