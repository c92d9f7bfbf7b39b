"""A host's pool of engine actors: models that run somewhere in Ray.

The driver makes the actors (``actors``); every host calls them. A request's inputs go into the
object store once and travel by reference; its outputs return the same way. Ray restarts an actor
whose process ends; its requests go to another actor.
"""

import logging
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from walle_stream.actors.engine.line import EngineLine
from walle_stream.actors.engine.ray_errors import death_errors, last_line
from walle_stream.clock import monotonic_ms
from walle_stream.errors import ClusterError, EngineError

_log = logging.getLogger(__name__)

DEATHS_MAX: Final = 3
"""Number of actors that one request may end before it is given up."""

LOST_AFTER_MS: Final = 120_000.0
"""Maximum wait for an actor whose process ended, when no other actor is up."""

_LOOK_S: Final = 1.0


class EngineHandles(NamedTuple):
    """References that a host needs to call the actors; sent to each host."""

    actors: tuple[Any, ...]
    """Ray's handles of ``EngineWorker``."""
    models: Mapping[str, Any]
    """References to the ``ModelBlueprint`` objects in the object store, by model name."""
    in_flight: int
    """Maximum requests of one host at an actor, and maximum concurrent runs of an actor."""


class EnginePool:
    """Models in the engine actors. Thread-safe; close it."""

    def __init__(
        self,
        ray: Any,
        handles: EngineHandles,
        *,
        first: int = 0,
        lost_after_ms: float = LOST_AFTER_MS,
    ) -> None:
        """Use actors that other hosts may call as well; never waits.

        ``first`` is preferred among equal actors.
        """
        self._ray = ray
        self._actors = handles.actors
        self._references = handles.models
        self._line = EngineLine(len(handles.actors), handles.in_flight, first)
        self._lost_after_ms = lost_after_ms
        self._is_closed = threading.Event()
        self._watchers: list[threading.Thread] = []
        self._deaths = death_errors(ray)

    def models(self) -> Mapping[str, "PooledModel"]:
        """Return the models, by name."""
        return {name: PooledModel(self, name) for name in self._references}

    def run(self, name: str, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a model in one of the actors; blocks, first for a place at an actor.

        Inputs go by position and are borrowed until return. The outputs, in order, belong to the
        caller.

        Raises:
            EngineError: The model raised it, the request has ended three actors, or the pool is
                closed.
            ClusterError: No actor is up, and none restarts.
        """
        ended: list[int] = []
        request = None
        while True:
            index = self._line.reserve()
            try:
                if request is None:
                    request = self._put(name, inputs)  # after a place is free, to limit memory
                outputs = self._ask(index, name, request, ended)
            finally:
                self._line.give(index)
            if outputs is not None:
                # the store's memory is read-only, and is freed only when no array refers to it
                return tuple(output.copy() for output in outputs)
            if len(ended) == DEATHS_MAX:
                actors = ", ".join(map(str, ended))
                raise EngineError(
                    f"model {name!r}: the processes of engine actors {actors} ended one after the "
                    "other while they ran this request, the last time alone. The request needs too "
                    "much memory, or crashes its process: give it smaller inputs, or try the model "
                    "with `walle engine run`"
                )

    def close(self) -> None:
        """End every wait; the actors belong to the driver. May be called twice."""
        self._is_closed.set()
        self._line.end(EngineError("the pool of engine actors is closed: its host is ending"))
        for thread in self._watchers:
            thread.join(2 * _LOOK_S)  # a thread that outlives Ray would end with an exception

    @property
    def loads(self) -> list[int]:
        """Number of current requests of this process at each actor."""
        return self._line.loads

    @property
    def waiting_count(self) -> int:
        """Number of requests of this process that wait for an actor now."""
        return self._line.waiting_count

    def _put(self, name: str, inputs: tuple[Any, ...]) -> Any:
        try:
            return self._ray.put(inputs)
        except self._ray.exceptions.RayError as error:
            raise ClusterError(
                f"Ray cannot keep the inputs of model {name!r} ({last_line(error)}): give its "
                "object store more room, with --object-store-memory of `ray start`"
            ) from error

    def _ask(self, index: int, name: str, request: Any, ended: list[int]) -> tuple[Any, ...] | None:
        # None: retry, on this actor or another one
        ray, actor, errors = self._ray, self._actors[index], self._ray.exceptions
        model = name, self._references[name]
        ticket, is_running = "", False
        try:
            if ended:
                # the request may be the cause of the crashes and must run alone
                ticket = uuid.uuid4().hex
                ray.get(actor.reserve.remote(ticket))
            is_running = True
            outputs: tuple[Any, ...] | None = ray.get(actor.run.remote(model, request, ticket))
        except self._deaths as error:
            if is_running:
                ended.append(index)
            _log.warning(
                "engine actor %d ended during a request for model %r, which is retried: %s",
                index,
                name,
                last_line(error),
            )
            if self._line.is_first_down(index):
                watcher = threading.Thread(
                    target=self._watch, args=(index,), name=f"walle-engine-{index}", daemon=True
                )
                self._watchers.append(watcher)
                watcher.start()
            return None
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, errors.RayError):
                raise self._lost(name, cause) from error
            raise (cause if isinstance(cause, Exception) else error) from None
        except errors.RayError as error:
            raise self._lost(name, error) from error
        return outputs

    def _lost(self, name: str, error: BaseException) -> ClusterError:
        return ClusterError(
            f"the Ray cluster lost a request for model {name!r} ({last_line(error)}): start the "
            "cluster again, then run the same command"
        )

    def _watch(self, index: int) -> None:
        # the call waits in Ray until the process has restarted
        began_ms = monotonic_ms()
        try:
            call = self._actors[index].hello.options(max_task_retries=-1).remote(self._references)
            while not self._is_closed.is_set():
                ready, _ = self._ray.wait([call], timeout=_LOOK_S)
                if ready:
                    self._ray.get(call)
                    self._line.up(index)
                    return
                if monotonic_ms() - began_ms > self._lost_after_ms:
                    self._line.lose(index, _gone(index, "the cluster starts no process for it"))
        except Exception as error:  # noqa: BLE001 - any error means that it is lost
            self._line.lose(index, _gone(index, last_line(error)))


class PooledModel:
    """A model in the engine actors: a ``ModelRunner``."""

    def __init__(self, pool: EnginePool, name: str) -> None:
        """Use a pool, which the caller closes."""
        self._pool: EnginePool | None = pool
        self._name = name

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the model; see ``EnginePool.run``.

        Raises:
            EngineError: See ``EnginePool.run``; or the model is closed.
        """
        pool = self._pool
        if pool is None:
            raise EngineError("the model is closed: its host has ended, or is ending")
        return pool.run(self._name, inputs)

    def close(self) -> None:
        """Refuse further calls; see ``ModelRunner``."""
        self._pool = None


def _gone(index: int, why: str) -> ClusterError:
    return ClusterError(
        f"no engine actor is left, the last one was {index}: {why}; check `ray status`, then run "
        "the same command"
    )
