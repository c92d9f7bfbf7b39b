"""Base of plans with an arena: each concurrent run has an instance with the calls in order."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from walle_stream.clock import monotonic_ms
from walle_stream.engine.backends.bound import bind
from walle_stream.engine.backends.library import Bound, Library, Run
from walle_stream.engine.backends.reference import Watch, compute
from walle_stream.engine.planning.elision import Elision, is_loose
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.planning.placement import place
from walle_stream.engine.program import Array, DType, Program, Step, Tensor
from walle_stream.errors import EngineError


class Arena:
    """Memory of one run at a time, and the plans that are bound to it."""

    def __init__(self, memory: Any, nbytes: int) -> None:
        """Take over the memory, an array of bytes."""
        self.memory = memory
        self.nbytes = nbytes
        self.instances: WeakKeyDictionary[ArenaPlan, Instance] = WeakKeyDictionary()


class Arenas:
    """Arenas that all plans of a model share: one for each concurrent run. Thread-safe."""

    def __init__(self, allocate: Callable[[int], Any]) -> None:
        """Start without arenas; ``allocate`` makes an array of some bytes."""
        self._allocate = allocate
        self._free: list[Arena] = []
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, plan: "ArenaPlan") -> Iterator[Arena]:
        """Lend an arena that is large enough, if possible one to which the plan is bound."""
        with self._lock:
            arena = max(self._free, key=partial(_suitable, plan), default=None)
            if arena is not None:
                self._free.remove(arena)
        if arena is None:
            arena = Arena(self._allocate(plan.nbytes), plan.nbytes)
        elif arena.nbytes < plan.nbytes:
            arena.instances.clear()  # the plans are bound again, so the smaller memory is freed
            arena.memory = None
            arena.memory = self._allocate(plan.nbytes)
            arena.nbytes = plan.nbytes
        try:
            yield arena
        finally:
            with self._lock:
                self._free.append(arena)


def _suitable(plan: "ArenaPlan", arena: Arena) -> tuple[bool, bool, int]:
    is_enough = arena.nbytes >= plan.nbytes
    return plan in arena.instances, is_enough, -arena.nbytes if is_enough else arena.nbytes


class ArenaPlan:
    """A program with its memory. Thread-safe: each concurrent run has its own instance."""

    def __init__(
        self, program: Program, elision: Elision, loops: Sequence[Loop], arenas: Arenas,
        make: "Callable[[Any], Instance]",
    ) -> None:  # fmt: skip
        """Place the tensors; ``make`` binds an instance to memory, which must not know the plan."""
        self.program = program
        self.elision = elision
        self.placement = place(program, elision, loops)
        self._arenas = arenas
        self._make = make

    @property
    def nbytes(self) -> int:
        """Bytes of the arena."""
        return self.placement.arena_bytes

    @contextmanager
    def instance(self) -> "Iterator[Instance]":
        """Lend an instance for a run, and keep it for the next run."""
        with self._arenas.lent(self) as arena:
            instance = arena.instances.get(self)
            if instance is None:
                instance = arena.instances[self] = self._make(arena.memory)
            yield instance


class Instance(ABC):
    """One arena, by default in the host's memory, and its calls. For one thread at a time."""

    def __init__(self, plan: ArenaPlan, arena: Any) -> None:
        """Bind the steps to an arena, a byte array of the backend's library."""
        self._program, self._elision = plan.program, plan.elision
        self._buffers = plan.placement.buffers
        self._arena = arena
        self._roots: dict[Tensor, Any] = {}
        self._loose: dict[Tensor, Array] = {}
        self._inputs = [
            None if is_loose(tensor) else self.view(tensor) for tensor in plan.program.inputs
        ]
        self._calls: list[Run] = []
        self._steps: list[Step] = []
        for call, step in self.bound():
            self._calls.append(call)
            self._steps.append(step)
        self._outputs = [
            None if is_loose(tensor) or (tensor.data is not None and tensor not in self._buffers)
            else self.view(tensor)
            for tensor in plan.program.outputs
        ]  # fmt: skip

    @abstractmethod
    def bound(self) -> Iterator[Bound]:
        """Yield the calls in order."""

    @abstractmethod
    def view(self, tensor: Tensor) -> Any:
        """Return the view through which a tensor that is not loose is read and written."""

    def constant(self, tensor: Tensor) -> Any:
        """Return the elements of a known tensor, row-major, in the memory of the backend."""
        assert tensor.data is not None, tensor  # noqa: S101
        return np.ascontiguousarray(tensor.data).reshape(tensor.shape)

    def stored(self, dtype: DType) -> DType:
        """Return the dtype of elements in the arena."""
        return dtype

    def write(self, target: Any, array: Array) -> None:
        """Copy an array of the host to a view."""
        np.copyto(target, array)

    def read(self, view: Any, dtype: DType) -> Array:
        """Copy a view to an array of the host with a given dtype."""
        del dtype
        result: Array = view.copy()
        return result

    def run(self, inputs: Sequence[Array], watch: Watch | None) -> list[Array]:
        """Run the calls; see ``engine.module.Plan``."""
        for tensor, target, array in zip(self._program.inputs, self._inputs, inputs, strict=True):
            if target is None:
                self._loose[tensor] = array
            else:
                self.write(target, array)
        self.run_calls(watch)
        outputs = [
            self._on_host(tensor).copy() if view is None else self.read(view, tensor.dtype)
            for tensor, view in zip(self._program.outputs, self._outputs, strict=True)
        ]
        self._loose.clear()
        return outputs

    def run_calls(self, watch: Watch | None) -> None:
        """Run the calls in order, and report the time of each to ``watch``.

        Raises:
            EngineError: A call failed; the message names its node.
        """
        number = 0
        try:
            if watch is None:
                for number, call in enumerate(self._calls):  # noqa: B007  # for the message of a failure
                    call()
            else:
                for number, call in enumerate(self._calls):
                    start_ms = monotonic_ms()
                    call()
                    watch(self._steps[number], monotonic_ms() - start_ms)
        except EngineError:
            raise
        except (
            # cupy's errors are RuntimeErrors
            IndexError, ValueError, TypeError, OverflowError, MemoryError, RuntimeError,
        ) as error:  # fmt: skip
            step = self._steps[number]
            raise EngineError(f"node {step.origin!r}: {step.operator}: {error}") from error

    def call(self, step: Step, library: Library | None = None) -> Run:
        """Bind a step to its views; a step with loose tensors runs on the host."""
        if any(is_loose(tensor) for tensor in (*step.inputs, *step.outputs)):
            return self._host_call(step)
        return bind(step, [self.view(x) for x in step.inputs], self.view(step.output), library)

    def _host_call(self, step: Step) -> Run:
        def call() -> None:
            array = compute(step, [self._on_host(operand) for operand in step.inputs])
            if is_loose(step.output):
                self._loose[step.output] = array
            else:
                self.write(self.view(step.output), array)

        return call

    def root(self, root: Tensor) -> Any:
        """Return the memory of a root, row-major and in its shape."""
        array = self._roots.get(root)
        if array is None:
            buffer = self._buffers.get(root)
            if buffer is None:
                array = self.constant(root)
            else:
                memory = self._arena[buffer.offset : buffer.offset + buffer.nbytes]
                array = memory.view(self.stored(root.dtype)).reshape(root.shape)
            self._roots[root] = array
        return array

    def _on_host(self, tensor: Tensor) -> Array:
        array = self._loose.get(tensor)
        if array is not None:
            return array
        return self.read(self.view(tensor), tensor.dtype) if tensor.data is None else tensor.data
