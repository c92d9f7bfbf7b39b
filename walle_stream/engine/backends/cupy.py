"""The cupy backend: passes, one arena on a device, kernels bound to their views when planned.

Strings and shapes that depend on values stay on the host, and so does what the
device has no dtype for: such steps copy there and back.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from walle_stream.engine.backends.bound import bind
from walle_stream.engine.backends.device import Device, IndexChecks, stored
from walle_stream.engine.backends.device_kernels import library_of
from walle_stream.engine.backends.interpreter import Watch
from walle_stream.engine.backends.library import Run, strided
from walle_stream.engine.backends.reference import compute, compute_all
from walle_stream.engine.backends.running import Instances, loose_output, run_calls
from walle_stream.engine.planning.elision import elide, is_loose, is_plain
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.planning.placement import place
from walle_stream.engine.program import Array, Program, Step, Tensor
from walle_stream.errors import EngineError
from walle_stream.errors.extras import how_to_install


class CupyBackend:
    """Plans for the first CUDA device. Thread-safe."""

    name = "cupy"

    def __init__(self, device: Device | None = None) -> None:
        """Find the device.

        Args:
            device: Another one, with cupy's interface; for tests.
        """
        self._device = device or _cuda()

    def plan(self, program: Program) -> "CupyPlan":
        """Make a program ready; see ``engine.module.Backend``."""
        return CupyPlan(optimised(program, compute), self._device)

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step on the host; see ``reference.compute``."""
        return compute(step, inputs)


class CupyPlan:
    """A program with its memory. Thread-safe: each run at the same time has its own."""

    def __init__(self, program: Program, device: Device) -> None:
        """Place the tensors."""
        self.program = program
        self.device = device
        self.elision = elide(program)
        # tiles are for a cache: a device takes a step as a whole
        self.placement = place(program, self.elision, [Loop([step]) for step in self.elision.steps])
        self._instances = Instances(lambda: _Instance(self))
        self._constants: dict[Tensor, Any] = {}
        self._lock = threading.Lock()

    def constant(self, tensor: Tensor) -> Any:
        """Give a constant on the device: one for all runs.

        Args:
            tensor: With data.
        """
        with self._lock:
            found = self._constants.get(tensor)
            if found is None:
                assert tensor.data is not None, tensor  # noqa: S101
                found = self.device.upload(tensor.data.reshape(tensor.shape))
                self._constants[tensor] = found
            return found

    @property
    def nbytes(self) -> int:
        """Bytes of the arena."""
        return self.placement.arena_bytes

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run it; see ``engine.module.Plan``. Times of a watch are those of launches.

        Raises:
            EngineError: An index is out of range, or memory is short.
        """
        try:
            with self._instances.one() as instance:
                return instance.run(inputs, watch)
        except MemoryError as error:
            raise EngineError(f"the device's memory is short: {error}") from error


class _Instance:
    """One arena and the calls on it."""

    def __init__(self, plan: CupyPlan) -> None:
        self._program = plan.program
        self._elision = plan.elision
        self._device = plan.device
        self._xp = plan.device.xp
        self._buffers = plan.placement.buffers
        self._constant = plan.constant
        self._arena = self._xp.empty(plan.placement.arena_bytes, np.dtype(np.uint8))
        self._roots: dict[Tensor, Any] = {}
        self._loose: dict[Tensor, Array] = {}
        self._inputs = [
            None if is_loose(each) else self._view(each) for each in self._program.inputs
        ]
        self._steps = plan.elision.steps
        self._checks = IndexChecks(plan.device, self._steps)
        library = library_of(plan.device, self._checks)
        self._calls: list[Run] = []
        for step in self._steps:
            if any(is_loose(each) for each in (*step.inputs, *step.outputs)):
                self._calls.append(self._host_call(step))
            else:
                inputs = [self._view(each) for each in step.inputs]
                self._calls.append(bind(step, inputs, self._view(step.output), library))
        self._outputs = [
            None if is_loose(each) or (each.data is not None and each not in self._buffers)
            else self._view(each)
            for each in self._program.outputs
        ]  # fmt: skip

    def run(self, inputs: Sequence[Array], watch: Watch | None) -> list[Array]:
        for tensor, target, given in zip(self._program.inputs, self._inputs, inputs, strict=True):
            if target is None:
                self._loose[tensor] = given
            else:
                self._xp.copyto(target, self._device.upload(given))
        self._checks.start()
        try:
            run_calls(self._calls, self._steps, watch)
        finally:
            # behind a failure, too: an index that was out of range may be what it came of
            self._checks.verify()
        outputs = [
            loose_output(self._loose, tensor) if view is None
            else self._device.download(view, tensor.dtype)
            for tensor, view in zip(self._program.outputs, self._outputs, strict=True)
        ]  # fmt: skip
        self._loose.clear()
        return outputs

    def _view(self, tensor: Tensor) -> Any:
        seen = self._elision.seen[tensor]
        root = self._root(seen.root)
        if is_plain(seen.view, tensor.shape):
            start = seen.view.offset
            return root.reshape(-1)[start : start + tensor.size].reshape(tensor.shape)
        return strided(root, tensor.shape, seen.view, self._xp)

    def _root(self, root: Tensor) -> Any:
        found = self._roots.get(root)
        if found is None:
            buffer = self._buffers.get(root)
            if buffer is None:
                found = self._constant(root)
            else:
                memory = self._arena[buffer.offset : buffer.offset + buffer.nbytes]
                found = memory.view(stored(root.dtype)).reshape(root.shape)
            self._roots[root] = found
        return found

    def _host_call(self, step: Step) -> Run:
        def call() -> None:
            given = [self._on_host(each) for each in step.inputs]
            for tensor, made in zip(step.outputs, compute_all(step, given), strict=True):
                if is_loose(tensor):
                    self._loose[tensor] = made
                else:
                    self._xp.copyto(self._view(tensor), self._device.upload(made))

        return call

    def _on_host(self, tensor: Tensor) -> Array:
        found = self._loose.get(tensor)
        if found is not None:
            return found
        if is_loose(tensor):
            assert tensor.data is not None, tensor  # noqa: S101
            return tensor.data
        return self._device.download(self._view(tensor), tensor.dtype)


def _cuda() -> Device:
    try:
        import cupy  # noqa: PLC0415  # an extra
        from cupyx.scipy.special import erf  # noqa: PLC0415  # same
    except ImportError as error:
        raise EngineError(
            "the backend cupy needs the extra gpu-cuda12 or gpu-cuda13, as the driver is: "
            f"{how_to_install('gpu-cuda12')}"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # cupy's own class, which is no public name
        raise EngineError(f"the backend cupy finds no CUDA device: {error}") from error
    if not count:
        raise EngineError("the backend cupy finds no CUDA device")
    return Device(cupy, erf)
