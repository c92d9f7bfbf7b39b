"""Who computes what a script left to its host."""

from typing import Protocol

from walle_stream.wire.graph import Constant, Graph


class TensorEvaluator(Protocol):
    """Evaluates tensor expressions of guests. Thread-safe; may block."""

    def evaluate(self, graph: Graph) -> list[Constant]:
        """Compute the outputs of a request.

        The result depends on the request alone, so that a run that is repeated
        gives the same.

        Args:
            graph: Its inputs were checked; operators, shapes and sizes were not.

        Returns:
            One value per output, in order.

        Raises:
            TensorError: It cannot be evaluated; told to the script.
            ClusterError: Nobody is there to run a model: ends the run of the pipeline.
        """
        ...
