"""A model of the host for its scripts, wherever it runs."""

from typing import Any, Protocol


class ModelRunner(Protocol):
    """A model with positional inputs: arrays in, arrays out; thread-safe.

    The threads of VMs call it, several at a time. The result of a call depends on its
    arrays alone, to the last bit, on any machine, because a run that is repeated after a
    crash must get the same result.
    """

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the model; blocks while it waits in the queue and until it is done.

        Args:
            inputs: Arrays of numpy in the order of the model's inputs, borrowed until the
                return and not changed. Optional ones at the end may be left out.

        Returns:
            The outputs in order: arrays of numpy, which the caller owns and may change. An
            output that is not a tensor is an array of objects.

        Raises:
            EngineError: The inputs do not fit, the model cannot run with them or ends
                every process that runs it, or ``close`` was called. The script gets it.
            ClusterError: No process is available to run the model. Since the inputs are
                not the cause, it ends the run of the pipeline, and no script gets it.
        """

    def close(self) -> None:
        """Free weights and plans after the running calls; may be called twice."""
