"""What an engine actor runs: models that it builds from Ray's object store.

The store has each model once: its graph, and weights as buffers that all actors of a
node map into their memory, read-only. Ray is imported where it is used.
"""

import os
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from walle_stream.actors.engine.gate import Gate
from walle_stream.engine.batching import BatchedModel, hosted
from walle_stream.engine.graph import Model
from walle_stream.engine.hosted import HostedModel
from walle_stream.errors import EngineError


@dataclass(frozen=True, slots=True)
class ModelBlueprint:
    """What a process needs to run a model: no file, and not the package that reads it."""

    place: str
    """Where the definition names it, for errors."""
    model: Model
    backend: str
    threads: int | None
    """Of products of matrices; None: see ``HostedModel.of``."""
    batch: int | None = None
    """Rows of each evaluation; None: as many as are asked for."""

    def build(self) -> HostedModel | BatchedModel:
        """Make the model in this process; nothing is lowered yet.

        Raises:
            EngineError: It cannot be had here; the message says where it is named.
        """
        try:
            return hosted(self.place, self.model, self.backend, self.threads, self.batch)
        except EngineError as error:
            if error.message.startswith(f"{self.place}: "):
                raise
            raise type(error)(f"{self.place}: {error.message}") from error

    @property
    def size_bytes(self) -> int:
        """Of what travels: the graph, and the weights' buffers, which are not copied for it."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(self, protocol=5, buffer_callback=buffers.append)
        return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


class EngineWorker:
    """Class of the Ray actor. Its calls run in several threads, and may block."""

    def __init__(self, in_flight: int, describe: Callable[[], Any]) -> None:
        """Build nothing yet; ``in_flight`` requests (≥ 1) are computed at a time.

        ``describe`` says what this process must have in common with the driver.
        """
        self._gate = Gate(in_flight)
        self._describe = describe
        self._lock = threading.Lock()
        self._models: dict[str, HostedModel | BatchedModel] = {}

    def hello(self, references: Mapping[str, Any]) -> tuple[int, Any]:
        """Build the models of the object store; return the process id and what ``describe`` says.

        Raises:
            EngineError: A model cannot be had here.
        """
        described = self._describe()  # before what another version could not build
        for name, reference in references.items():
            self._built(name, reference)
        return os.getpid(), described

    def reserve(self, ticket: str) -> None:
        """Keep the actor for a request that may have ended another one; see ``Gate``."""
        self._gate.reserve(ticket)

    def run(
        self, model: tuple[str, Any], inputs: tuple[Any, ...], ticket: str = ""
    ) -> tuple[Any, ...] | None:
        """Run a model; waits in line.

        The model is a name and a reference: this process may not have met it yet. Inputs go by
        position; they lie in the object store, read-only. Returns the outputs in order, None where
        the reservation of the ticket was over before.

        Raises:
            EngineError: See ``HostedModel``.
        """
        runner = self._built(*model)
        with self._gate.inside(ticket) as is_inside:
            return runner(*inputs) if is_inside else None

    def _built(self, name: str, reference: Any) -> HostedModel | BatchedModel:
        with self._lock:
            runner = self._models.get(name)
            if runner is None:
                import ray  # noqa: PLC0415 - in a process of Ray's alone

                blueprint: ModelBlueprint = ray.get(reference)
                runner = self._models[name] = blueprint.build()
            return runner
