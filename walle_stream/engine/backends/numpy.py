"""The numpy backend: passes, one arena, kernels bound to their views when planned."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from walle_stream.engine.backends.library import Bound, strided
from walle_stream.engine.backends.reference import Watch, compute
from walle_stream.engine.backends.running import ArenaPlan, Instance
from walle_stream.engine.backends.spreading import SpreadConstants
from walle_stream.engine.backends.tiles import bind_chain, tiled
from walle_stream.engine.planning.elision import elide
from walle_stream.engine.planning.loops import loops_of
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.planning.placement import ALIGNMENT
from walle_stream.engine.planning.weights import lay_out_weights
from walle_stream.engine.program import Array, Program, Tensor


class NumpyBackend:
    """Plans for numpy on the CPU. Thread-safe."""

    name = "numpy"
    compute = staticmethod(compute)

    def __init__(self, check: Callable[[Program], None] | None = None) -> None:
        """Create the backend; ``check`` is called with the program after each pass."""
        self._check = check

    def plan(self, program: Program) -> "NumpyPlan":
        """Prepare a program; see ``engine.module.Backend``."""
        kept = {
            id(tensor.data)
            for step in program.steps
            for tensor in step.inputs
            if tensor.data is not None
        }
        return NumpyPlan(lay_out_weights(optimised(program, compute, self._check), kept))


class NumpyPlan(ArenaPlan):
    """A program with its memory."""

    def __init__(self, program: Program) -> None:
        """Place the tensors of a program."""
        elision = elide(program)
        self.loops = loops_of(elision)
        self.constants = SpreadConstants()
        super().__init__(program, elision, self.loops, lambda: _Instance(self))

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run the program; see ``engine.module.Plan`` and ``engine.profiling``."""
        with self.instance() as instance, np.errstate(all="ignore"):
            return instance.run(inputs, watch)


class _Instance(Instance):
    def __init__(self, plan: NumpyPlan) -> None:
        self._plan = plan
        super().__init__(plan, _aligned_bytes(plan.nbytes))

    def view(self, tensor: Tensor) -> Array:
        alias = self._elision.aliases[tensor]
        if alias.root is tensor and tensor.data is not None and tensor not in self._buffers:
            return tensor.data
        return strided(self.root(alias.root), tensor.shape, alias.view)

    def bound(self) -> Iterator[Bound]:
        for loop in self._plan.loops:
            if loop.is_cut:
                yield from tiled(loop, self._elision, self.view, self._plan.constants)
            elif loop.rows:
                yield from bind_chain(loop.steps, self._elision, self.view, self._plan.constants)
            else:
                (step,) = loop.steps
                yield Bound(self.call(step), step)


def _aligned_bytes(count: int) -> Array:
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count]
