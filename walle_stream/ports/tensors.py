"""Who computes what a script left to its host."""

from collections.abc import Sequence
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

    def evaluate_all(self, graphs: Sequence[Graph]) -> list[list[Constant]]:
        """Compute requests of many runs, which crossed together.

        Each is answered with the same bytes as if it had come alone.

        Args:
            graphs: As for ``evaluate``; a node may be what one before gives.

        Returns:
            One list for each, in order.

        Raises:
            TensorError: One of them cannot be evaluated, or all together are too
                much: whoever asked asks for each alone.
        """
