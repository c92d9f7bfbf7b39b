"""Code of an engine actor: models that it builds from Ray's object store.

The store has each model once: its graph, and weights as buffers. All actors of a node map the
buffers into their memory, read-only. Ray is imported where it is used.
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
    """Description of a model for another process, which needs neither its file nor its reader."""

    place: str
    """Place in the definition, for errors."""
    model: Model
    backend: str
    threads: int | None
    """Number of threads for matrix products; None: see ``HostedModel.of``."""
    batch: int | None = None
    """Rows per evaluation; None: as many as requested."""

    def build(self) -> HostedModel | BatchedModel:
        """Make the model in this process, without lowering it yet.

        Raises:
            EngineError: The model cannot be built here; the message has its place in the
                definition.
        """
        try:
            return hosted(self.place, self.model, self.backend, self.threads, self.batch)
        except EngineError as error:
            if error.message.startswith(f"{self.place}: "):
                raise
            raise type(error)(f"{self.place}: {error.message}") from error

    @property
    def size_bytes(self) -> int:
        """Bytes to send: the graph, and the weights' buffers, which are not copied."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(self, protocol=5, buffer_callback=buffers.append)
        return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


class EngineWorker:
    """Class of the Ray actor. Its calls run in several threads, and may block."""

    def __init__(self, in_flight: int, describe: Callable[[], Any]) -> None:
        """Build nothing yet; at most ``in_flight`` requests (≥ 1) run at a time.

        ``describe`` returns the versions that this process must share with the driver.
        """
        self._gate = Gate(in_flight)
        self._describe = describe
        self._lock = threading.Lock()
        self._models: dict[str, HostedModel | BatchedModel] = {}

    def hello(self, references: Mapping[str, Any]) -> tuple[int, Any]:
        """Build the models of the object store; return the process id and the ``describe`` result.

        Raises:
            EngineError: A model cannot be built here.
        """
        described = self._describe()  # first, as another version might fail to build the models
        for name, reference in references.items():
            self._built(name, reference)
        return os.getpid(), described

    def reserve(self, ticket: str) -> None:
        """Reserve the actor for a request that may have ended another one; see ``Gate``."""
        self._gate.reserve(ticket)

    def run(
        self, model: tuple[str, Any], inputs: tuple[Any, ...], ticket: str = ""
    ) -> tuple[Any, ...] | None:
        """Run a model; waits in line.

        The model is a name and a reference, as this process may not know it yet. Inputs go by
        position; they lie in the object store, read-only. Returns the outputs in order, or None if
        the ticket's reservation has expired.

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
                import ray  # noqa: PLC0415 - only in Ray's processes

                blueprint: ModelBlueprint = ray.get(reference)
                runner = self._models[name] = blueprint.build()
            return runner
