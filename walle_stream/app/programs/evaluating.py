"""The tensor engine, from the first script on that has tensors."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from walle_stream.wire.graph import Constant, Graph


class LazyEvaluator:
    """A ``TensorEvaluator`` on numpy, whose import costs 0.1 s: most tasks have no tensors."""

    def __init__(self, models: Mapping[str, Callable[..., Any]]) -> None:
        """Import nothing yet; ``models`` are what scripts may ask for, by name."""
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

        # two that come first at the same time make two: either will do
        return EngineEvaluator(NumpyBackend(), self._models)
