"""What plans with an arena share: one instance a run at a time, and the calls of it in order."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from walle_stream.clock import monotonic_ms
from walle_stream.engine.backends.interpreter import Watch
from walle_stream.engine.backends.library import Run
from walle_stream.engine.program import Array, Step, Tensor
from walle_stream.errors import EngineError


class Instances[T]:
    """Keeps what a run needs for itself, for the next run. Thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Begin with none.

        Args:
            make: Makes one; runs without the lock.
        """
        self._make = make
        self._free: list[T] = []
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[T]:
        """Lend one for a run, also to several threads at the same time."""
        with self._lock:
            instance = self._free.pop() if self._free else None
        if instance is None:
            instance = self._make()
        try:
            yield instance
        finally:
            with self._lock:
                self._free.append(instance)


def run_calls(calls: Sequence[Run], steps: Sequence[Step], watch: Watch | None) -> None:
    """Run calls in order.

    Args:
        calls: Bound steps.
        steps: One a call, for messages and ``watch``.
        watch: Told how long each took.

    Raises:
        EngineError: One fails; the message names its node.
    """
    number = 0
    try:
        if watch is None:
            for number, call in enumerate(calls):  # noqa: B007  # named when it fails
                call()
        else:
            for number, call in enumerate(calls):
                start_ms = monotonic_ms()
                call()
                watch(steps[number], monotonic_ms() - start_ms)
    except EngineError:
        raise
    except (
        # cupy's own are RuntimeErrors
        IndexError, ValueError, TypeError, OverflowError, MemoryError, RuntimeError,
    ) as error:  # fmt: skip
        step = steps[number]
        raise EngineError(f"node {step.origin!r}: {step.operator}: {error}") from error


def loose_output(loose: Mapping[Tensor, Array], tensor: Tensor) -> Array:
    """Give an output that does not lie in the arena.

    Returns:
        The caller's own.
    """
    found = loose.get(tensor)
    if found is None:
        assert tensor.data is not None, tensor  # noqa: S101
        found = tensor.data
    return found.copy()
