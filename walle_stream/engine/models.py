"""Public interface of the engine: load a model and run it.

A ``Module`` runs any graph: control flow, shapes that change, shapes that depend on values. It
keeps the plans for one set of shapes for the next run with these shapes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walle_stream.engine.backends import backend_named
from walle_stream.engine.graph import Model, ValueType
from walle_stream.engine.inputs import checked_inputs
from walle_stream.engine.limits import Limits
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.session import Session, owned, read_model, read_model_bytes
from walle_stream.engine.threads import checked_threads, run_with
from walle_stream.engine.values import Maps, plain
from walle_stream.errors import EngineError

if TYPE_CHECKING:
    from walle_stream.engine.profiling import Profile


class Module:
    """A model that is ready to run. Thread-safe; ``run`` blocks.

    Several threads may call it at a time: each run has its own memory, and the plans are shared.
    The first run for new shapes lowers and plans. Other runs that need a plan of the same part of
    the graph wait meanwhile.
    """

    def __init__(
        self, model: Model, *, backend: str = "numpy", threads: int | None = None,
        limits: Limits | None = None,
    ) -> None:  # fmt: skip
        """Take over a model as an importer makes it; it is not changed.

        The backend is ``numpy``, or ``reference``, which is slow and defines the results.
        ``threads`` is the number of threads for matrix products; None keeps numpy's own number. The
        number holds for the whole process during a run, see ``engine.threads``. ``limits`` apply to
        each run; by default they are as wide as the machine allows.
        """
        self.model = model
        self.backend = backend
        self.threads = checked_threads(threads)
        self.limits = limits or Limits()
        self._runner = GraphRunner(
            model.graph, model.functions, backend_named(backend), self.limits
        )

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Required inputs, in order: dtype and shape by name.

        An axis of a shape is a number, a name that stands for a number, or None. Optional inputs,
        for which the model has a value, are not included.
        """
        graph = self.model.graph
        return {name: kind for name, kind in graph.inputs.items() if name not in graph.constants}

    @property
    def outputs(self) -> Mapping[str, ValueType]:
        """Outputs, in order: dtype and shape by name, as far as the model declares them."""
        return self.model.graph.outputs

    def run(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None, *,
        maps: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        """Run the model. Blocks.

        Inputs are arrays by name, or values that numpy converts to arrays. A sequence is a list of
        them, an empty optional is None. Inputs are not changed. The whole model runs, whatever
        ``outputs`` selects. Returns arrays by name, lists of arrays for sequences, and lists of
        dicts for sequences of maps (``ZipMap``); they belong to the caller. Without ``maps`` the
        last are arrays ``(N, E)`` of the values, in the order of the keys, which is much faster.

        Raises:
            EngineError: An input or output is wrong, or the model cannot be run with
                it; the message names the input, the output or the node.
        """
        names = list(self.outputs)
        if isinstance(outputs, str) or not (outputs is None or isinstance(outputs, Sequence)):
            raise EngineError(f"outputs must be given as a list of names, not {outputs!r:.100}")
        wanted = names if outputs is None else list(outputs)
        unknown = next((name for name in wanted if name not in names), None)
        if unknown is not None:
            listed = ", ".join(map(repr, names))
            raise EngineError(f"the model has no output {unknown!r}: it has {listed}")
        arrays = checked_inputs(self.model.graph, inputs)
        with run_with(self.threads):
            result = dict(zip(names, self._runner.run(arrays), strict=True))
        own = owned({name: result[name] for name in wanted}, arrays)
        return {
            name: data.values if isinstance(data, Maps) and not maps else plain(data)
            for name, data in own.items()
        }

    def session(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Session:
        """Make a session of the model for shapes, with the same backend, threads and limits."""
        return Session(
            self.model, shapes, backend=self.backend, threads=self.threads, limits=self.limits
        )

    def profile(self, inputs: Mapping[str, Any], repeats: int = 10) -> "Profile":
        """Time the steps of the model over several runs, after one that plans. Blocks.

        Inputs are as for ``run``. The profile has times by node and operator, and the size of the
        program after each stage.
        """
        from walle_stream.engine.profiling import profile_model  # noqa: PLC0415  # seldom

        arrays = checked_inputs(self.model.graph, inputs)
        with run_with(self.threads):
            backend = backend_named(self.backend)
            return profile_model(self.model, arrays, backend, repeats, self.limits)


def load(
    path: str | Path, *, backend: str = "numpy", threads: int | None = None,
    limits: Limits | None = None,
) -> Module:  # fmt: skip
    """Read an ONNX file as a ``Module``, with its arguments. Blocks; any thread may call it.

    External tensors are read only from the folder of the file. Lowering waits for the first run.

    Raises:
        ModelError: The file is not an ONNX model, or cannot be read.
        EngineError: The extra ``onnx`` is not installed, the backend is unknown, or the number of
            threads cannot be set.
    """
    return Module(read_model(path), backend=backend, threads=threads, limits=limits)


def load_bytes(
    data: bytes, *, backend: str = "numpy", threads: int | None = None,
    limits: Limits | None = None, folder: Path | None = None,
) -> Module:  # fmt: skip
    """Read an ONNX model from the bytes of its file; see ``load``.

    ``folder`` has its external tensors; with None the model may have none.
    """
    return Module(read_model_bytes(data, folder), backend=backend, threads=threads, limits=limits)
