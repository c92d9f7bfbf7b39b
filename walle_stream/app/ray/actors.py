"""The driver's view of a worker process: it starts, asks and restarts the process.

A worker moves through *steps*. Each is a call whose answer the driver awaits without blocking:
``hello`` (compares versions), ``open`` (locks, databases), then for a host ``begin`` and repeated
``state`` calls.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

from walle_stream.actors.engine.ray_errors import last_line
from walle_stream.app.ray.session import Versions, check_worker
from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    ActorDeadError,
    ClusterError,
    StoreCorruptedError,
    StoreFullError,
    StoreLockedError,
    WalleError,
)

_log = logging.getLogger(__name__)

POLL_MS: Final = 200.0
"""Interval at which an open worker is asked for its state."""

START_TIMEOUT_MS: Final = 120_000.0
"""Maximum wait for a process that the cluster starts."""

DEATHS_MAX: Final = 12
"""Number of successive deaths without a commit after which the run gives up."""

type Step = Literal["starting", "opening", "opened", "running", "done"]


class Worker:
    """One worker process. One thread, the driver's."""

    def __init__(
        self,
        ray: Any,
        name: str,
        make: Callable[[], Any],
        here: Versions,
        *,
        is_patient: bool = False,
    ) -> None:
        """Start it without waiting; ``is_patient``: its cluster may get room for it later."""
        self.name = name
        self.step: Step = "starting"
        self.pid = 0
        self.restarts = 0
        self.opened: Any = None
        """Answer of ``open``."""
        self.state: Any = None
        """Latest answer of ``state``."""
        self.answer: Any = None
        """Answer of the last call."""
        self._cpu_s = 0.0
        self._ray = ray
        self._make = make
        self._here = here
        self._is_patient = is_patient
        self._deaths = 0
        self._asked_ms = 0.0
        self._method = ""
        self.ref: Any = None
        """The pending call, None between calls."""
        self._start()

    def call(self, method: str, *arguments: Any) -> None:
        """Make a call whose answer ``take`` reads; never waits."""
        self._method = method
        self._asked_ms = monotonic_ms()
        self.ref = getattr(self.actor, method).remote(*arguments)

    def tell(self, method: str, *arguments: Any) -> None:
        """Make a call without an answer; a call to a dead worker is lost."""
        getattr(self.actor, method).remote(*arguments)

    def ask_again(self) -> None:
        """Ask for the worker's state if an interval has passed; never waits.

        Raises:
            ClusterError: The cluster does not start the process.
        """
        waited_ms = monotonic_ms() - self._asked_ms
        if self.ref is None and self.step == "running" and waited_ms >= POLL_MS:
            self.call("state")
        elif self.step == "starting" and self.ref is not None and waited_ms > START_TIMEOUT_MS:
            problem = (
                f"the Ray cluster started no process for {self.name} in "
                f"{START_TIMEOUT_MS / 1000.0:g} s: it has no room, or its node is gone; check "
                "`ray status`"
            )
            if not self._is_patient:
                raise ClusterError(f"{problem}, or unset RAY_ADDRESS")
            _log.warning("%s; the run waits for it", problem)
            self._asked_ms = monotonic_ms()

    def take(self) -> str:
        """Read the answer of the pending call, or learn that the worker died.

        Returns the method that answered, or an empty string if the worker was restarted.

        Raises:
            ClusterError: The process cannot be started, or the cluster is gone.
            WalleError: The call raised it, or the worker dies repeatedly.
        """
        ref, self.ref = self.ref, None
        errors = self._ray.exceptions
        try:
            value = self._ray.get(ref)
        except errors.RayActorError as error:
            if getattr(error, "actor_init_failed", False):
                raise ClusterError(
                    f"a worker of the Ray cluster cannot run {self.name} ({last_line(error)}): "
                    "start the cluster from this environment"
                ) from error
            self.restart("its process died")
            return ""
        except errors.RayTaskError as error:
            cause = error.cause
            is_lock = isinstance(cause, StoreLockedError)  # it has waited for the lock already
            if self.outlives(cause) and not is_lock and self.step == "opening":
                self.restart(str(cause))
                return ""
            if not isinstance(cause, WalleError):
                _log.error("%s failed in its call %s: %s", self.name, self._method, error)
            raise (cause if isinstance(cause, BaseException) else error) from None
        except errors.RayError as error:
            raise ClusterError(
                f"the Ray cluster lost {self.name} ({last_line(error)}): start the cluster again, "
                "then run the same command"
            ) from error
        self.answer = value
        if self._method == "hello":
            self.pid, there = value
            check_worker(f"{self.name} (process {self.pid})", self._here, there)
        elif self._method == "open":
            self.step, self.opened = "opened", value
        elif self._method == "state":
            self.state = value
        return self._method

    def outlives(self, error: BaseException | None) -> bool:
        """Return whether another process may continue where this one failed.

        A full disk or a damaged database affects one node: other nodes of the cluster have their
        own.
        """
        is_elsewhere = self._is_patient and isinstance(error, (StoreFullError, StoreCorruptedError))
        return is_elsewhere or (isinstance(error, WalleError) and error.is_retryable)

    def commits_came(self) -> None:
        """Record a commit: the next death counts as the first."""
        self._deaths = 0

    def restart(self, why: str, *, is_death: bool = True) -> None:
        """End the process and start another one; never waits.

        Raises:
            ActorDeadError: The process died too often without a commit.
        """
        self.kill()
        self._deaths += is_death
        self.restarts += 1
        if self.state is not None:
            self._cpu_s += self.state.cpu_s
            self.state = None
        if self._deaths > DEATHS_MAX:
            raise ActorDeadError(
                f"{self.name} (process {self.pid}) died {self._deaths} times without a commit, "
                f"last: {why}; committed data stays. Check its log with --log-level debug, "
                "then run the same command"
            )
        _log.warning(
            "%s (process %d) is restarted from its last commits: %s", self.name, self.pid, why
        )
        self._start()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the worker's processes, as each last reported."""
        return self._cpu_s + (self.state.cpu_s if self.state is not None else 0.0)

    def kill(self) -> None:
        """End the process at once; ignores a cluster that is gone."""
        with suppress(Exception):
            self._ray.kill(self.actor, no_restart=True)

    def drop(self) -> None:
        """End the worker for good, without waiting for a pending answer."""
        self.kill()
        self.ref, self.step = None, "done"

    def _start(self) -> None:
        self.step, self.pid, self.opened = "starting", 0, None
        self.actor = self._make()
        self.call("hello")
