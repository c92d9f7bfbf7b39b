"""The numpy backend: passes, one arena, kernels bound to their views when planned."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from walle_stream.engine.backends.library import Bound, strided
from walle_stream.engine.backends.reference import Watch, compute
from walle_stream.engine.backends.running import ArenaPlan, Arenas, Instance
from walle_stream.engine.backends.tiles import bind_chain, tiled
from walle_stream.engine.derived import SHARED, recipe_of
from walle_stream.engine.planning.elision import elide
from walle_stream.engine.planning.loops import loops_of
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.planning.placement import ALIGNMENT
from walle_stream.engine.planning.weights import lay_out_weights
from walle_stream.engine.program import Array, Program, Step, Tensor


class NumpyBackend:
    """Plans for numpy on the CPU. Thread-safe."""

    name = "numpy"

    def __init__(self, check: Callable[[Program], None] | None = None) -> None:
        """Create the backend; ``check`` is called with the program after each pass."""
        self._check = check
        self._arenas = Arenas(_aligned_bytes)

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step on constants; see ``reference.compute``. Plans share the result."""
        recipe = recipe_of(step)
        if recipe is None:
            return compute(step, inputs)
        return SHARED.of(recipe, inputs, partial(compute, step, inputs))

    def plan(self, program: Program) -> "NumpyPlan":
        """Prepare a program; see ``engine.module.Backend``."""
        kept = {
            id(tensor.data)
            for step in program.steps
            for tensor in step.inputs
            if tensor.data is not None
        }
        better = optimised(program, self.compute, self._check)
        return NumpyPlan(lay_out_weights(better, kept), self._arenas)


class NumpyPlan(ArenaPlan):
    """A program with its memory."""

    def __init__(self, program: Program, arenas: Arenas) -> None:
        """Place the tensors of a program in memory that plans share."""
        elision = elide(program)
        self.loops = loops_of(elision)
        super().__init__(
            program, elision, self.loops, arenas, lambda memory: _Instance(self, memory)
        )

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run the program; see ``engine.module.Plan`` and ``engine.profiling``."""
        with self.instance() as instance, np.errstate(all="ignore"):
            return instance.run(inputs, watch)


class _Instance(Instance):
    def __init__(self, plan: NumpyPlan, memory: Array) -> None:
        self._loops = plan.loops
        self._blocks: list[Array] = []
        super().__init__(plan, memory)

    def view(self, tensor: Tensor) -> Array:
        alias = self._elision.aliases[tensor]
        if alias.root is tensor and tensor.data is not None and tensor not in self._buffers:
            return tensor.data
        return strided(self.root(alias.root), tensor.shape, alias.view)

    def bound(self) -> Iterator[Bound]:
        for loop in self._loops:
            if loop.is_cut:
                yield from tiled(loop, self._elision, self.view, self._blocks)
            elif loop.rows:
                yield from bind_chain(loop.steps, self._elision, self.view)
            else:
                (step,) = loop.steps
                yield Bound(self.call(step), step)


def _aligned_bytes(count: int) -> Array:
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count]
