"""A model that the host has for its scripts, wherever it is run."""

from typing import Any, Protocol


class ModelRunner(Protocol):
    """A model by position: arrays in, arrays out. Thread-safe.

    Called by the threads of VMs, several at a time. What a call gives depends on its
    arrays alone, to the last bit, whoever computes it: a run that is repeated after a
    death must get the same.
    """

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the model; blocks until it is done, and while it waits in line.

        Args:
            inputs: Arrays of numpy in the order of the model's inputs, borrowed until
                return and not changed. Optional ones at the end may be left out.

        Returns:
            Its outputs, in order: arrays of numpy, the caller's own to write into. One
            that is no tensor is an array of objects.

        Raises:
            EngineError: The inputs do not fit, or the model cannot be run with them, or
                ends every process that runs it; told to the script. Also after ``close``.
            ClusterError: Nobody is there to run it: no matter of the inputs, so it ends
                the run of the pipeline and no script is told.
        """

    def close(self) -> None:
        """Let go of weights and plans; calls under way are finished. May be called twice."""
