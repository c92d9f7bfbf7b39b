"""Models of the host that a pipeline names: ONNX files and Python functions.

An ONNX file is read by each process that runs it: a host reads it from the definition's path when
it opens its VMs. If engine actors run the model, only the driver reads the file.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walle_stream.app.programs.functions import load_function
from walle_stream.errors import EngineError
from walle_stream.spec.references import ModelReference

if TYPE_CHECKING:
    from walle_stream.actors.engine.worker import ModelBlueprint
    from walle_stream.engine.batching import BatchedModel
    from walle_stream.engine.hosted import HostedModel


class OnnxModel:
    """A model in an ONNX file, read once: a ``ModelRunner`` in this process."""

    def __init__(
        self, place: str, file: Path, backend: str, threads: int | None, batch: int | None = None
    ) -> None:
        """Keep the parameters for reading.

        ``threads`` is the number of threads for matrix products (None: one, if numpy's library
        allows the setting). ``batch`` is the number of rows per evaluation (None: as many as
        requested).
        """
        self._place = place
        self._file = file
        self._backend = backend
        self._threads = threads
        self._batch = batch
        self._lock = threading.Lock()
        self._model: HostedModel | BatchedModel | None = None
        self._is_closed = False

    def check(self) -> None:
        """Read the file as a check, and keep nothing."""
        self._read()

    def read(self) -> "HostedModel | BatchedModel":
        """Read the file unless it was read before.

        Raises:
            EngineError: The file is no model, or none for scripts, or the backend is cupy and there
                is no CUDA device. The message has the place in the definition.
        """
        with self._lock:
            if self._is_closed:
                raise EngineError(f"{self._place}: the model is closed: its host is ending")
            if self._model is None:
                self._model = self._read()
            return self._model

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the model; see ``HostedModel``."""
        return self.read()(*inputs)

    def close(self) -> None:
        """Release the model; see ``ModelRunner``."""
        with self._lock:
            self._is_closed = True
            self._model = None

    def blueprint(self) -> "ModelBlueprint":
        """Read the file for other processes, which may have its backend; keeps nothing."""
        from walle_stream.actors.engine.worker import (  # noqa: PLC0415 - see _read
            ModelBlueprint,
        )

        model = self._read(is_here=False).module.model
        return ModelBlueprint(self._place, model, self._backend, self._threads, self._batch)

    def _read(self, *, is_here: bool = True) -> "HostedModel | BatchedModel":
        # numpy and onnx take 0.3 s to import: only pipelines with models need them
        from walle_stream.engine.batching import hosted  # noqa: PLC0415 - see above
        from walle_stream.engine.session import read_model  # noqa: PLC0415 - see above

        own = (self._backend, self._threads) if is_here else ("numpy", None)
        try:
            return hosted(self._place, read_model(self._file), *own, self._batch)
        except EngineError as error:
            if error.message.startswith(f"{self._place}: "):
                raise
            file = str(self._file)
            where = "" if file in error.message else f"{file}: "
            raise type(error)(f"{self._place}: {where}{error.message}") from error


class BatchedOnnxModel(OnnxModel):
    """An ``OnnxModel`` with ``batch``: it evaluates rows of several requests at once."""

    def run_many(self, requests: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Run the model for several requests; see ``engine.batching``."""
        model: Any = self.read()
        outputs: list[tuple[Any, ...]] = model.run_many(requests)
        return outputs


def load_models(
    references: Mapping[str, ModelReference], threads: int | None = None
) -> dict[str, Callable[..., Any]]:
    """Import functions, and prepare ONNX files as ``OnnxModel`` without reading them.

    ``threads`` is for ONNX models that do not set their own.

    Raises:
        FunctionError: A function cannot be imported.
    """
    return {
        name: _load(f"spec.models.{name}", reference, threads)
        for name, reference in references.items()
    }


def onnx_models(models: Mapping[str, Callable[..., Any]]) -> dict[str, OnnxModel]:
    """Return the models of ``load_models`` that are ONNX files."""
    return {name: model for name, model in models.items() if isinstance(model, OnnxModel)}


def _load(place: str, reference: ModelReference, threads: int | None) -> Callable[..., Any]:
    if reference.onnx is not None:
        own = threads if reference.threads is None else reference.threads
        kind = OnnxModel if reference.batch is None else BatchedOnnxModel
        return kind(place, reference.onnx, reference.backend, own, reference.batch)
    return load_function(place, reference.file, str(reference.function))
