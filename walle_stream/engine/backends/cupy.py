"""The cupy backend: passes, one arena on a device, kernels bound to their views when planned.

Strings and shapes that depend on values stay on the host. Steps on dtypes that the device lacks
copy their elements to the host and back.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from walle_stream.engine.backends.device_kernels import Device, IndexChecks, library_of, stored
from walle_stream.engine.backends.library import Bound, strided
from walle_stream.engine.backends.reference import Watch, compute
from walle_stream.engine.backends.running import ArenaPlan, Arenas, Instance
from walle_stream.engine.planning.elision import elide, is_plain
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.program import Array, DType, Program, Tensor
from walle_stream.errors import EngineError
from walle_stream.errors.extras import how_to_install


class CupyBackend:
    """Plans for the first CUDA device. Thread-safe."""

    name = "cupy"
    compute = staticmethod(compute)

    def __init__(self, device: Device | None = None) -> None:
        """Find the device; tests pass their own, with cupy's interface."""
        self._device = device or _cuda()
        self._arenas = Arenas(self._allocate)

    def _allocate(self, nbytes: int) -> Any:
        return self._device.xp.empty(nbytes, np.dtype(np.uint8))

    def plan(self, program: Program) -> "CupyPlan":
        """Prepare a program; see ``engine.module.Backend``."""
        return CupyPlan(optimised(program, compute), self._device, self._arenas)


class CupyPlan(ArenaPlan):
    """A program with its memory on a device."""

    def __init__(self, program: Program, device: Device, arenas: Arenas) -> None:
        """Place the tensors of a program in memory that plans share."""
        self.device = device
        self.constants = _Constants(device)
        elision = elide(program)
        # tiles serve the cache of a CPU; a device runs a step as a whole
        loops = [Loop([step]) for step in elision.steps]
        super().__init__(program, elision, loops, arenas, lambda memory: _Instance(self, memory))

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run the program; see ``engine.module.Plan``. A watch gets the times of launches.

        Raises:
            EngineError: An index is out of range, or memory is short.
        """
        try:
            with self.instance() as instance:
                return instance.run(inputs, watch)
        except MemoryError as error:
            raise EngineError(f"the device's memory is exhausted: {error}") from error


class _Constants:
    """Constants on the device, which all runs of a plan share. Thread-safe."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[Tensor, Any] = {}
        self._lock = threading.Lock()

    def of(self, tensor: Tensor) -> Any:
        with self._lock:
            array = self._arrays.get(tensor)
            if array is None:
                assert tensor.data is not None, tensor  # noqa: S101
                array = self._device.upload(tensor.data.reshape(tensor.shape))
                self._arrays[tensor] = array
            return array


class _Instance(Instance):
    def __init__(self, plan: CupyPlan, memory: Any) -> None:
        self._device, self._xp = plan.device, plan.device.xp
        self._checks = IndexChecks(plan.device, plan.elision.steps)
        self._shared = plan.constants
        super().__init__(plan, memory)

    def view(self, tensor: Tensor) -> Any:
        alias = self._elision.aliases[tensor]
        root = self.root(alias.root)
        if is_plain(alias.view, tensor.shape):
            start = alias.view.offset
            return root.reshape(-1)[start : start + tensor.size].reshape(tensor.shape)
        return strided(root, tensor.shape, alias.view, self._xp)

    def constant(self, tensor: Tensor) -> Any:
        return self._shared.of(tensor)

    def stored(self, dtype: DType) -> DType:
        return stored(dtype)

    def write(self, target: Any, array: Array) -> None:
        self._xp.copyto(target, self._device.upload(array))

    def read(self, view: Any, dtype: DType) -> Array:
        return self._device.download(view, dtype)

    def bound(self) -> Iterator[Bound]:
        library = library_of(self._device, self._checks)
        for step in self._elision.steps:
            yield Bound(self.call(step, library), step)

    def run_calls(self, watch: Watch | None) -> None:
        self._checks.start()
        try:
            super().run_calls(watch)
        finally:
            # also after a failure: an index out of range may be its cause
            self._checks.verify()


def _cuda() -> Device:
    try:
        import cupy  # noqa: PLC0415  # an extra
        from cupyx.scipy.special import erf  # noqa: PLC0415  # same
    except ImportError as error:
        raise EngineError(
            "the backend cupy needs the extra gpu-cuda12 or gpu-cuda13, to match the driver: "
            f"{how_to_install('gpu-cuda12')}"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # cupy's own class, which is no public name
        raise EngineError(f"the backend cupy finds no CUDA device: {error}") from error
    if not count:
        raise EngineError("the backend cupy finds no CUDA device")
    return Device(cupy, erf)
