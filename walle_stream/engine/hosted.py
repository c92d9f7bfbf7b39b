"""A model for scripts, with inputs by position and outputs by number.

A script has five dtypes, a model may have any. A tensor is cast to the declared dtype if every
value survives the cast, and refused otherwise. An output is widened if scripts lack its dtype.
Both depend only on the model's declaration and the values, so a repeated run gets the same result.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import numpy as np

from walle_stream.engine.graph import Model, Node, OptionalType, TensorType, ValueType
from walle_stream.engine.limits import Limits
from walle_stream.engine.models import Module
from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import BOOL, FLOAT32, INT64, is_floating, is_integer
from walle_stream.engine.threads import blas_threads
from walle_stream.errors import DTypeError, EngineError, ModelError

RUN_MAX_S: Final = 60.0
"""Time limit of one evaluation of a pipeline's model, checked between nodes and iterations."""


_WIDER: Final[Mapping[str, DType]] = {
    **dict.fromkeys(("bool", "uint4", "uint2"), np.dtype(np.uint8)),
    **dict.fromkeys(("int2", "int4", "int8", "int16", "uint16"), np.dtype(np.int32)),
    "uint32": INT64,
}
"""Wider dtype of an output, which holds every value of the narrower one."""

_TWO_63: Final = 2.0**63


_SEEDED: Final = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    "Bernoulli", "Multinomial",
})  # fmt: skip


class HostedModel:
    """A model as a function of arrays: a ``ModelRunner`` in this process."""

    def __init__(self, module: Module) -> None:
        """Take over a module and check its whole model; runs nothing.

        The inputs by position are those that have no value in the model.

        Raises:
            DTypeError: A script's tensor cannot be cast to the type of an input.
            ModelError: The model draws random numbers without a seed.
        """
        for name, kind in module.inputs.items():
            _check_input(name, kind)
        model = module.model
        drawing = next(_unseeded(model), None)
        if drawing is not None:
            raise ModelError(
                f"{drawing.title}: it draws other random numbers in each run, but a repeated run"
                " must give the same result: export the model for inference, or with a seed"
            )
        self._module: Module | None = module

    @classmethod
    def of(cls, model: Model, backend: str = "numpy", threads: int | None = None) -> Self:
        """Make a hosted model as pipelines run it, in this or in another process.

        Matrix products use one thread by default, if the thread count of numpy's library can be
        set.

        Raises:
            EngineError: The model cannot run here, or is unsuitable for scripts.
        """
        if threads is None and blas_threads() is not None:
            # with several threads, sums may be added in another order
            threads = 1
        limits = Limits(seconds=RUN_MAX_S)
        return cls(Module(model, backend=backend, threads=threads, limits=limits))

    @property
    def module(self) -> Module:
        """The module that runs the model.

        Raises:
            EngineError: The model was closed.
        """
        if self._module is None:
            raise EngineError("the model is closed: its host has ended, or is ending")
        return self._module

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Run the model on arrays in the order of its inputs.

        Optional inputs at the end may be omitted. Returns the outputs, in order. Maps with the same
        keys become a matrix of their values. Any other output that is not a tensor becomes an
        array of objects.

        Raises:
            EngineError: The arrays do not fit, or the model cannot be run with them; the
                message names the input or the node.
        """
        module = self.module
        kinds = module.inputs
        needed = sum(not isinstance(kind, OptionalType) for kind in kinds.values())
        if not needed <= len(arrays) <= len(kinds):
            names = ", ".join(map(repr, kinds)) or "no inputs"
            raise EngineError(f"{len(arrays)} inputs were given: the model has {names}")
        inputs = {
            name: _cast(name, array, kind)
            for (name, kind), array in zip(kinds.items(), arrays, strict=False)
        }
        return tuple(_widened(data) for data in module.run(inputs, maps=False).values())

    def close(self) -> None:
        """Release weights and plans; see ``ModelRunner``."""
        self._module = None


def _declared(kind: ValueType) -> ValueType:
    return kind.element if isinstance(kind, OptionalType) else kind


def _check_input(name: str, kind: ValueType) -> None:
    declared = _declared(kind)
    if declared is None:
        return
    if not isinstance(declared, TensorType):
        raise DTypeError(f"input {name!r} is not a tensor, but scripts have only tensors")
    dtype = declared.dtype
    if dtype != BOOL and not is_integer(dtype) and not is_floating(dtype):
        raise DTypeError(f"input {name!r} is of {dtype.name}: scripts have only tensors of numbers")


def _cast(name: str, array: Array, kind: ValueType) -> Array:
    declared = _declared(kind)
    if not isinstance(declared, TensorType) or array.dtype == declared.dtype:
        return array
    dtype = declared.dtype
    with np.errstate(all="ignore"):
        other = array.astype(dtype)
        is_same = _is_same(array, other)
    if not is_same:
        raise DTypeError(
            f"input {name!r} is of {dtype.name}, which cannot hold each value of this"
            f" {array.dtype.name} tensor: give values that it can hold, or use astype"
        )
    return other


def _is_same(array: Array, other: Array) -> bool:
    if is_floating(array.dtype):
        if is_floating(other.dtype):
            return bool(np.array_equal(array, other.astype(np.float64), equal_nan=True))
        if not np.all((array >= -_TWO_63) & (array < _TWO_63)):  # also false for NaN
            return False
        whole = array.astype(np.int64)
        if not np.array_equal(whole, array):
            return False
        array = whole
    if is_floating(other.dtype):
        wide = other.astype(np.float64)
        # 2**63 and infinity do not survive the cast to int64
        is_inside = (wide >= -_TWO_63) & (wide < _TWO_63)
        return bool(np.all(is_inside)) and bool(np.array_equal(wide.astype(np.int64), array))
    # a cast there and back loses only a sign
    if other.dtype.name.startswith("uint") and np.any(array < 0):
        return False
    return bool(np.array_equal(other.astype(np.int64), array))


def _widened(value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        return np.empty((), object)
    dtype = value.dtype
    if is_floating(dtype) and dtype.itemsize < FLOAT32.itemsize:
        return value.astype(FLOAT32)
    wider = _WIDER.get(dtype.name)
    return value if wider is None else value.astype(wider)


def _unseeded(model: Model) -> Iterator[Node]:
    constants: dict[str, Any] = dict(model.graph.constants)
    for node in model.graph.nodes:
        if node.operator == "Constant" and not node.domain:
            constants[node.outputs[0]] = node.attributes.get("value")
    parts = [(model.graph.nodes, constants)]
    parts += [(function.nodes, {}) for function in model.functions.values()]
    for nodes, known in parts:
        for node in nodes:
            yield from (inner for inner in node.within() if _draws(inner, known))


def _draws(node: Node, constants: Mapping[str, Any]) -> bool:
    if node.domain:
        return False
    if isinstance(node.attributes.get("seed"), (int, float)):
        return False
    if node.operator != "Dropout":
        return node.operator in _SEEDED
    if node.version < 7:  # noqa: PLR2004  # older opsets have the attribute is_test
        return not node.attributes.get("is_test", 0)
    trains = node.inputs[2] if len(node.inputs) > 2 else ""  # noqa: PLR2004  # data, ratio, mode
    if node.version < 12 or not trains:  # noqa: PLR2004  # the opset that made it an input
        return False
    known = constants.get(trains)
    return not isinstance(known, np.ndarray) or bool(np.any(known))
