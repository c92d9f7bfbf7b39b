"""The numpy backend: passes, one arena, kernels bound to their views when planned."""

from collections.abc import Callable, Sequence

import numpy as np

from walle_stream.engine.backends.bound import bind
from walle_stream.engine.backends.chains import Bound, bind_chain
from walle_stream.engine.backends.interpreter import Watch
from walle_stream.engine.backends.library import Run, strided
from walle_stream.engine.backends.reference import compute, compute_all
from walle_stream.engine.backends.running import Instances, loose_output, run_calls
from walle_stream.engine.backends.spreading import SpreadConstants
from walle_stream.engine.backends.tiles import tiled
from walle_stream.engine.planning.elision import elide, is_loose
from walle_stream.engine.planning.loops import Loop, loops_of
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.planning.placement import ALIGNMENT, place
from walle_stream.engine.planning.weights import lay_out_weights
from walle_stream.engine.program import Array, Program, Step, Tensor


class NumpyBackend:
    """Plans for numpy on the CPU. Thread-safe."""

    name = "numpy"

    def __init__(self, check: Callable[[Program], None] | None = None) -> None:
        """Make plans.

        Args:
            check: Called with each program after each pass.
        """
        self._check = check

    def plan(self, program: Program) -> "NumpyPlan":
        """Make a program ready; see ``engine.module.Backend``."""
        kept = {
            id(each.data) for step in program.steps for each in step.inputs if each.data is not None
        }
        return NumpyPlan(lay_out_weights(optimised(program, compute, self._check), kept))

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step; see ``reference.compute``."""
        return compute(step, inputs)


class NumpyPlan:
    """A program with its memory. Thread-safe: each run at the same time has its own."""

    def __init__(self, program: Program) -> None:
        """Place the tensors."""
        self.program = program
        self.elision = elide(program)
        self.loops = loops_of(self.elision)
        self.placement = place(program, self.elision, self.loops)
        self.constants = SpreadConstants()
        self._instances = Instances(lambda: _Instance(self))

    @property
    def nbytes(self) -> int:
        """Bytes of the arena."""
        return self.placement.arena_bytes

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run it; see ``engine.module.Plan`` and ``engine.profiling``."""
        with self._instances.one() as instance, np.errstate(all="ignore"):
            return instance.run(inputs, watch)


class _Instance:
    """One arena and the calls on it."""

    def __init__(self, plan: NumpyPlan) -> None:
        self._program = plan.program
        self._elision = plan.elision
        self._buffers = plan.placement.buffers
        self._arena = _aligned_bytes(plan.placement.arena_bytes)
        self._roots: dict[Tensor, Array] = {}
        self._loose: dict[Tensor, Array] = {}
        self._inputs = [
            None if is_loose(each) else self._view(each) for each in self._program.inputs
        ]
        self._calls: list[Run] = []
        self._steps: list[Step] = []
        for loop in plan.loops:
            for call, step in self._bound(loop, plan.constants):
                self._calls.append(call)
                self._steps.append(step)
        self._outputs = [
            None if is_loose(each) else self._view(each) for each in self._program.outputs
        ]

    def run(self, inputs: Sequence[Array], watch: Watch | None) -> list[Array]:
        for tensor, target, given in zip(self._program.inputs, self._inputs, inputs, strict=True):
            if target is None:
                self._loose[tensor] = given
            else:
                np.copyto(target, given)
        run_calls(self._calls, self._steps, watch)
        outputs = [
            loose_output(self._loose, tensor) if view is None else view.copy()
            for tensor, view in zip(self._program.outputs, self._outputs, strict=True)
        ]
        self._loose.clear()
        return outputs

    def _view(self, tensor: Tensor) -> Array:
        seen = self._elision.seen[tensor]
        if seen.root is tensor and tensor.data is not None and tensor not in self._buffers:
            return tensor.data
        return strided(self._root(seen.root), tensor.shape, seen.view)

    def _root(self, root: Tensor) -> Array:
        found = self._roots.get(root)
        if found is None:
            buffer = self._buffers.get(root)
            if buffer is None:
                assert root.data is not None, root  # noqa: S101
                found = np.ascontiguousarray(root.data).reshape(root.shape)
            else:
                memory = self._arena[buffer.offset : buffer.offset + buffer.nbytes]
                found = memory.view(root.dtype).reshape(root.shape)
            self._roots[root] = found
        return found

    def _bound(self, loop: Loop, constants: SpreadConstants) -> list[Bound]:
        if loop.is_cut:
            return tiled(loop, self._elision, self._view, constants)
        if loop.rows:
            return bind_chain(loop.steps, self._elision, self._view, constants)
        (step,) = loop.steps
        return [(self._call(step), step)]

    def _call(self, step: Step) -> Run:
        if any(is_loose(each) for each in (*step.inputs, *step.outputs)):
            return self._loose_call(step)
        inputs = [self._view(each) for each in step.inputs]
        if "regions" in step.parameters:
            inputs = [np.ascontiguousarray(each) for each in inputs]
        return bind(step, inputs, self._view(step.output))

    def _loose_call(self, step: Step) -> Run:
        def call() -> None:
            given = [
                self._loose[each] if each in self._loose
                else each.data if is_loose(each) and each.data is not None
                else self._view(each)
                for each in step.inputs
            ]  # fmt: skip
            for tensor, made in zip(step.outputs, compute_all(step, given), strict=True):
                if is_loose(tensor):
                    self._loose[tensor] = made
                else:
                    np.copyto(self._view(tensor), made)

        return call


def _aligned_bytes(count: int) -> Array:
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count]
