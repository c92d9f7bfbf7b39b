"""The host's evaluator of tensor expressions of scripts."""

from collections.abc import Sequence
from typing import Protocol

from walle_stream.wire.graph import Constant, Graph


class TensorEvaluator(Protocol):
    """Evaluator of guests' tensor expressions; thread-safe, and may block."""

    def evaluate(self, graph: Graph) -> list[Constant]:
        """Compute the outputs of a request.

        The result depends on the request alone, so that a repeated run gets the same
        values.

        Args:
            graph: A request with checked inputs, but unchecked operators, shapes and sizes.

        Returns:
            One value per output, in order.

        Raises:
            TensorError: The request cannot be evaluated; the script gets the error.
            ClusterError: No process can run a model; ends the run of the pipeline.
        """

    def evaluate_all(self, graphs: Sequence[Graph]) -> list[list[Constant]]:
        """Compute requests of many runs, which crossed together.

        Each answer has the same bytes as for the request alone.

        Args:
            graphs: Requests as for ``evaluate``; a node may be an output of an earlier one.

        Returns:
            One list for each request, in order.

        Raises:
            TensorError: A request cannot be evaluated, or all together are too large.
                The guest then sends each request alone.
        """
