"""Rules by operator, which lower each operator to rasters and atomics.

A rule is a function of a ``Call``, which has the node and its inputs. It emits steps through the
call's builder and returns the node's outputs. If it asks for an unknown value, it is run again
later from the start, so it must keep no state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from walle_stream.engine.graph import Node
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.program import Array, DType, Tensor
from walle_stream.engine.rules import is_integer
from walle_stream.engine.values import Maps
from walle_stream.errors import DTypeError, LoweringError, ShapeError

type Value = Tensor | list["Value"] | Maps[Tensor] | None
"""A tensor, a sequence, maps, or an empty optional; its structure is known at lowering."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Nodes that replace one node; each is lowered by a rule of its own.

    They serve operators that go on after a shape that depends on values. The steps after
    ``NONZERO`` are a separate node, so that the graph is cut between both.
    """

    nodes: tuple[Node, ...]
    """Nodes that read the inputs of the replaced node and make its outputs; see ``Call.stage``."""

    def __init__(self, *nodes: Node) -> None:
        """Take over the nodes in order."""
        object.__setattr__(self, "nodes", nodes)


type Result = Value | tuple[Value, ...] | Stages
"""One output, all outputs, or the nodes that make them."""

INNER_DOMAIN: Final = "walle"
"""Domain of operators that only stages of other operators use."""

NEWEST: Final = 28
"""The newest opset of ONNX's own domain that this engine knows."""


class Kind(StrEnum):
    """The kind of an operator, after Walle 2022."""

    ATOMIC = "atomic"
    """One atomic operator of a program, on broadcast shapes."""
    TRANSFORM = "transform"
    """Only rasters: elements move, and none is computed."""
    COMPOSITE = "composite"
    """Rasters and atomics."""
    STRUCTURE = "structure"
    """Sequences, maps and optionals, which disappear from a program."""
    CONTROL = "control"
    """Runs graphs; a program is cut there."""


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a rule: a node, its inputs, and the builder."""

    builder: Builder
    node: Node
    inputs: tuple[Value, ...]
    """Values of the inputs; None for an omitted one."""

    @property
    def version(self) -> int:
        """Opset of the node's domain."""
        return self.node.version

    # inputs

    def has(self, number: int) -> bool:
        """Whether an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def wants(self, number: int) -> bool:
        """Whether an output is wanted, that is, has a name."""
        return number < len(self.node.outputs) and bool(self.node.outputs[number])

    def inner_name(self, name: str) -> str:
        """Return a name, unique in the graph, for a value between the stages of the node."""
        return f"{self.node.first_output or self.node.name}/{name}"

    def stage(
        self, operator: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        attributes: Mapping[str, Any] | None = None,
    ) -> Node:  # fmt: skip
        """Make a stage of the node: an operator of ``INNER_DOMAIN`` between named values."""
        return Node(operator, inputs, outputs, attributes or {}, self.node.name, INNER_DOMAIN, 1)

    def apply(
        self, operator: str, *inputs: Value, outputs: int = 1, domain: str = "",
        version: int = NEWEST, **given: Any,
    ) -> Any:  # fmt: skip
        """Lower another operator as a part of this node, with values instead of names.

        ``given`` are its attributes. Returns its output, or a tuple if there are ``outputs``.
        """
        names = tuple(map(str, range(max(len(inputs), outputs))))
        node = Node(
            operator, names[: len(inputs)], names[:outputs], given, domain=domain, version=version
        )
        result = rules()[domain, operator].lower(Call(self.builder, node, inputs))
        assert not isinstance(result, Stages)  # noqa: S101  # stages read names
        values = result if isinstance(result, tuple) else (result,)
        return values[0] if outputs == 1 else values[:outputs]

    def tensor(self, number: int) -> Tensor:
        """Return an input that must be a tensor.

        Raises:
            LoweringError: The input is missing, or is no tensor.
        """
        value = self.inputs[number] if number < len(self.inputs) else None
        if not isinstance(value, Tensor):
            kind = {type(None): "is missing", Maps: "is a map"}.get(type(value), "is a sequence")
            raise LoweringError(f"input {number} {kind}; a tensor is expected")
        return value

    def optional(self, number: int) -> Tensor | None:
        """Return an optional input, or None."""
        return self.tensor(number) if self.has(number) else None

    def scalar(self, number: int, dtype: DType | None = None) -> Tensor:
        """Return an input of one element with shape ``()``, cast to ``dtype`` if given.

        Raises:
            ShapeError: The input does not have exactly one element.
        """
        x = self.tensor(number)
        if x.size != 1:
            raise ShapeError(f"input {number} of shape {list(x.shape)} is not a scalar")
        return self.builder.cast(self.builder.reshape(x, ()), dtype or x.dtype)

    def tensors(self) -> list[Tensor]:
        """Return all inputs, which must be tensors.

        Raises:
            LoweringError: There are no inputs.
        """
        if not self.inputs:
            raise LoweringError("no input is given; at least one is expected")
        return [self.tensor(number) for number in range(len(self.inputs))]

    def sequence(self, number: int) -> list[Value]:
        """Return the elements of an input that must be a sequence.

        Raises:
            LoweringError: The input is not a sequence.
        """
        value = self.inputs[number] if number < len(self.inputs) else None
        if not isinstance(value, list):
            raise LoweringError(f"input {number} is not a sequence")
        return value

    def values(self, number: int) -> Array:
        """Return the elements of an input on which a shape depends."""
        return self.builder.value(self.tensor(number))

    def numbers(self, number: int) -> tuple[int, ...] | None:
        """Return the elements of an integer input, or None if it is omitted.

        Raises:
            DTypeError: The input has another dtype.
        """
        if not self.has(number):
            return None
        dtype = self.tensor(number).dtype
        if not is_integer(dtype):
            raise DTypeError(f"input {number} must be whole numbers, not {dtype.name}")
        return tuple(int(element) for element in self.values(number).reshape(-1))

    # attributes

    def attribute(self, name: str) -> Any:
        """Return an attribute unchanged, or None if it is omitted."""
        return self.node.attributes.get(name)

    def kept(self, *names: str) -> dict[str, Any]:
        """Return those of the named attributes that are given, unchanged."""
        return {name: self.attribute(name) for name in names if name in self.node.attributes}

    def number(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute; it is required if there is no default."""
        value: int = self._of_type(name, default, (int,), "a whole number")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """Return a floating-point attribute; see ``number``."""
        return float(self._of_type(name, default, (int, float), "a number"))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text attribute; see ``number``."""
        value = self._of_type(name, default, (bytes, str), "text")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """Return a text attribute that must be one of ``choices``; see ``number``.

        Raises:
            LoweringError: The text is another one.
        """
        value = self.text(name, default)
        if value not in choices:
            listed = ", ".join(choices)
            raise LoweringError(f"attribute {name!r} is {value!r}, not one of {listed}")
        return value

    def list(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute with a list of integers, or None if it is omitted."""
        return self._of_elements(name, (int,), "whole numbers")

    def reals(self, name: str) -> tuple[float, ...]:
        """Return an attribute with a list of numbers; empty if it is omitted."""
        return tuple(map(float, self._of_elements(name, (int, float), "numbers") or ()))

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return an attribute with a list of texts, or None if it is omitted."""
        values = self._of_elements(name, (bytes,), "strings")
        return None if values is None else tuple(text.decode("utf-8", "replace") for text in values)

    def _of_type(self, name: str, default: Any, types: Collection[type], what: str) -> Any:
        value = self.node.attributes.get(name, default)
        if type(value) not in types:
            raise LoweringError(f"attribute {name!r} must be {what}, not {value!r}")
        return value

    def _of_elements(self, name: str, types: Collection[type], what: str) -> Any:
        values = self.node.attributes.get(name)
        if values is None or (
            isinstance(values, tuple) and all(type(value) in types for value in values)
        ):
            return values
        raise LoweringError(f"attribute {name!r} must be {what}, not {values!r}")

    # axes

    def axis(self, rank: int, default: int | None = None, name: str = "axis") -> int:
        """Return an attribute that names an axis of a tensor with ``rank`` axes, from 0."""
        return axis_of(self.number(name, default), rank)


def axes_of(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front; see ``axis_of``.

    Raises:
        ShapeError: An axis is named twice.
    """
    result = tuple(axis_of(axis, rank) for axis in axes)
    if len(set(result)) != len(result):
        raise ShapeError(f"axes {list(axes)} name an axis twice")
    return result


def axis_of(axis: int, rank: int) -> int:
    """Return an axis, which may be negative, counted from the front: in ``0 .. rank - 1``.

    Raises:
        ShapeError: There is no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"there is no axis {axis} of {rank}")
    return axis % rank


type RuleFunction = Callable[[Call], Result]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule that lowers one operator."""

    operator: str
    domain: str
    kind: Kind
    lower: RuleFunction


_RULES: Final[dict[tuple[str, str], Rule]] = {}


def lowers(
    *operators: str, kind: Kind = Kind.COMPOSITE, domain: str = ""
) -> Callable[[RuleFunction], RuleFunction]:
    """Register the decorated function as the rule of operators."""

    def register(function: RuleFunction) -> RuleFunction:
        for operator in operators:
            _RULES[domain, operator] = Rule(operator, domain, kind, function)
        return function

    return register


@cache
def rules() -> Mapping[tuple[str, str], Rule]:
    """Return all rules by domain and operator; the first call imports all modules of lowering."""
    import_module("walle_stream.engine.control")
    package = import_module("walle_stream.engine.lowering")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return _RULES
