"""The tensor engine, imported when the first script uses tensors."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from walle_stream.wire.graph import Constant, Graph


class LazyEvaluator:
    """A ``TensorEvaluator`` on numpy with a lazy import: most tasks need no tensors.

    The import costs 0.1 s.
    """

    def __init__(self, models: Mapping[str, Callable[..., Any]]) -> None:
        """Import nothing yet; ``models`` are available to scripts by name."""
        self._models = models

    def evaluate(self, graph: Graph) -> list[Constant]:
        """See ``TensorEvaluator.evaluate``."""
        values: list[Constant] = self._evaluator.evaluate(graph)
        return values

    def evaluate_all(self, graphs: Sequence[Graph]) -> list[list[Constant]]:
        """See ``TensorEvaluator.evaluate_all``."""
        values: list[list[Constant]] = self._evaluator.evaluate_all(graphs)
        return values

    @cached_property
    def _evaluator(self) -> Any:
        from walle_stream.engine.backends.numpy import NumpyBackend  # noqa: PLC0415 - see above
        from walle_stream.engine.expressions import EngineEvaluator  # noqa: PLC0415 - see above

        # two concurrent first calls make two evaluators: either will do
        return EngineEvaluator(NumpyBackend(), self._models)
