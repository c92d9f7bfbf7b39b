"""The driver's view of the engine actors: it starts, awaits and ends them.

They are not detached: they end with the driver's job, whatever becomes of the driver.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from walle_stream.actors.engine.pool import EngineHandles
from walle_stream.actors.engine.ray_errors import last_line
from walle_stream.actors.engine.worker import EngineWorker, ModelBlueprint
from walle_stream.clock import monotonic_ms
from walle_stream.errors import ClusterError, WalleError
from walle_stream.spec.engine import EngineSpec

_LOOK_S: Final = 0.2
_SPARE_THREADS: Final = 2  # for ``hello`` calls, of the driver and of hosts that watch the actor


class EngineActors:
    """All engine actors of a run. One thread, the driver's."""

    def __init__(
        self,
        ray: Any,
        blueprints: Mapping[str, ModelBlueprint],
        spec: EngineSpec,
        *,
        hosts: int,
        describe: Callable[[], Any],
    ) -> None:
        """Put each model into the object store, once, and start the actors; never waits.

        ``hosts`` is the number of processes that call them. ``describe`` is that of
        ``EngineWorker``.

        Raises:
            ClusterError: The object store cannot keep the models.
        """
        self._ray = ray
        self._spec = spec
        try:
            # references kept here, as restarted processes read the models again
            self._kept = {name: ray.put(blueprint) for name, blueprint in blueprints.items()}
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"Ray cannot keep the models ({last_line(error)}): give its object store more "
                "room, with --object-store-memory of `ray start`"
            ) from error
        remote = ray.remote(EngineWorker).options(
            num_cpus=spec.cpus,
            num_gpus=spec.gpus,
            max_restarts=-1,
            max_task_retries=0,  # hosts retry on another actor
            max_concurrency=hosts * spec.in_flight + _SPARE_THREADS,
        )
        # without the models: Ray prints a warning for a constructor with references
        self._actors = [remote.remote(spec.in_flight, describe) for _ in range(spec.actors)]
        self._began_ms = monotonic_ms()
        self._calls = {
            actor.hello.options(max_task_retries=-1).remote(self._kept): index
            for index, actor in enumerate(self._actors)
        }
        self.pids = [0] * spec.actors

    @property
    def handles(self) -> EngineHandles:
        """References that hosts need for calls."""
        return EngineHandles(tuple(self._actors), self._kept, self._spec.in_flight)

    def await_ready(
        self,
        check: Callable[[str, Any], None],
        is_stopped: Callable[[], bool],
        timeout_ms: float,
    ) -> None:
        """Wait until every actor has its models; blocks.

        ``check`` gets an actor's name and description, and refuses a wrong one. ``is_stopped`` is
        called several times a second. The timeout counts from the start.

        Raises:
            ClusterError: The cluster has no room for an actor, or its versions differ from this
                process.
            EngineError: An actor cannot build a model.
        """
        while self._calls and not is_stopped():
            ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=_LOOK_S)
            for call in ready:
                index = self._calls.pop(call)
                self.pids[index], there = self._answer(index, call)
                check(f"engine actor {index} (process {self.pids[index]})", there)
            if self._calls and monotonic_ms() - self._began_ms > timeout_ms:
                raise self._no_room(timeout_ms)

    def close(self) -> None:
        """End the actors at once; ignores a cluster that is gone. May be called twice."""
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor, no_restart=True)

    def _answer(self, index: int, call: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, WalleError):
                raise cause from None
            raise self._unfit(index, error) from error
        except errors.RayError as error:
            raise self._unfit(index, error) from error

    def _unfit(self, index: int, error: BaseException) -> ClusterError:
        return ClusterError(
            f"a worker of the Ray cluster cannot run engine actor {index} ({last_line(error)}): "
            "start the cluster from this environment"
        )

    def _no_room(self, timeout_ms: float) -> ClusterError:
        spec = self._spec
        numbers = ", ".join(map(str, sorted(self._calls.values())))
        gpus = f" and {spec.gpus:g} GPUs" if spec.gpus else ""
        return ClusterError(
            f"the Ray cluster started no process for engine actors {numbers} of {spec.actors}, "
            f"each with {spec.cpus:g} CPUs{gpus}, in {timeout_ms / 1000.0:g} s: it has no room; "
            "check `ray status`, or lower spec.engine.actors, cpus or gpus"
        )
