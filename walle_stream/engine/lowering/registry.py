"""Rules by operator: how each becomes rasters and atomics.

A rule is a function of a ``Call``: what a node was given. It emits steps through
the call's builder and returns the node's outputs. It may be run again from the
start when it asked for what is not known yet, so it keeps nothing.
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
from walle_stream.errors import DTypeError, LoweringError, ShapeError

type Value = Tensor | list["Value"] | None
"""A tensor, a sequence, or an empty optional: the structure is known when it is lowered."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Nodes that take the place of one, each lowered by a rule of its own.

    Of an operator that computes on after a shape that only values give: what follows
    ``NONZERO`` is a node of its own, so that the graph is cut between both.
    """

    nodes: tuple[Node, ...]
    """They read what the node reads, and make its outputs; see ``Call.stage``."""

    def __init__(self, *nodes: Node) -> None:
        """Take the nodes in order."""
        object.__setattr__(self, "nodes", nodes)


type Result = Value | tuple[Value, ...] | Stages
"""One output, or all of them, or what makes them."""

INNER_DOMAIN: Final = "walle"
"""Of operators that only stages of others use."""


class Kind(StrEnum):
    """What an operator is, after Walle 2022."""

    ATOMIC = "atomic"
    """One atomic operator of a program, shapes spread to each other."""
    TRANSFORM = "transform"
    """Rasters alone: elements move, none is computed."""
    COMPOSITE = "composite"
    """Rasters and atomics."""
    STRUCTURE = "structure"
    """Sequences and optionals: nothing is left of it in a program."""
    CONTROL = "control"
    """Runs graphs; a program is cut there."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a rule is given of a node."""

    builder: Builder
    node: Node
    inputs: tuple[Value, ...]
    """None where one is left out."""

    @property
    def version(self) -> int:
        """Opset of the node's domain."""
        return self.node.version

    # inputs

    def has(self, number: int) -> bool:
        """Whether an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def wants(self, number: int) -> bool:
        """Whether somebody reads an output: it has a name."""
        return number < len(self.node.outputs) and bool(self.node.outputs[number])

    def inner_name(self, name: str) -> str:
        """Name a value between the stages of the node as no other value of the graph."""
        return f"{self.node.first_output or self.node.name}/{name}"

    def stage(
        self, operator: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        attributes: Mapping[str, Any] | None = None,
    ) -> Node:  # fmt: skip
        """Make a stage of the node: an operator of ``INNER_DOMAIN`` between named values."""
        return Node(operator, inputs, outputs, attributes or {}, self.node.name, INNER_DOMAIN, 1)

    def tensor(self, number: int) -> Tensor:
        """Give an input that must be a tensor.

        Raises:
            LoweringError: It is left out, or a sequence.
        """
        value = self.inputs[number] if number < len(self.inputs) else None
        if not isinstance(value, Tensor):
            kind = "is missing" if value is None else "is a sequence"
            raise LoweringError(f"input {number} {kind}; a tensor is expected")
        return value

    def optional(self, number: int) -> Tensor | None:
        """Give an input that may be left out, or None."""
        return self.tensor(number) if self.has(number) else None

    def scalar(self, number: int, dtype: DType | None = None) -> Tensor:
        """Give an input of one element, of shape ``()``, in its dtype or another.

        Raises:
            ShapeError: It has more or fewer.
        """
        x = self.tensor(number)
        if x.size != 1:
            raise ShapeError(f"input {number} of shape {list(x.shape)} is no scalar")
        return self.builder.cast(self.builder.reshape(x, ()), dtype or x.dtype)

    def tensors(self) -> list[Tensor]:
        """Give all inputs, at least one, which must be tensors.

        Raises:
            LoweringError: There is none.
        """
        if not self.inputs:
            raise LoweringError("no input is given; at least one is expected")
        return [self.tensor(number) for number in range(len(self.inputs))]

    def sequence(self, number: int) -> list[Value]:
        """Give the elements of an input that must be a sequence.

        Raises:
            LoweringError: It is something else.
        """
        value = self.inputs[number] if number < len(self.inputs) else None
        if not isinstance(value, list):
            raise LoweringError(f"input {number} is no sequence")
        return value

    def values(self, number: int) -> Array:
        """Give the elements of an input, which a shape depends on."""
        return self.builder.value(self.tensor(number))

    def numbers(self, number: int) -> tuple[int, ...] | None:
        """Give the elements of an input of whole numbers, or None where it is left out.

        Raises:
            DTypeError: They are of another dtype.
        """
        if not self.has(number):
            return None
        dtype = self.tensor(number).dtype
        if not is_integer(dtype):
            raise DTypeError(f"input {number} must be whole numbers, not {dtype.name}")
        return tuple(int(element) for element in self.values(number).reshape(-1))

    # attributes

    def attribute(self, name: str) -> Any:
        """Give an attribute as it is, or None where it is left out."""
        return self.node.attributes.get(name)

    def number(self, name: str, default: int | None = None) -> int:
        """Give an attribute that is a whole number; without a default it must be given."""
        value: int = self._of_type(name, default, (int,), "a whole number")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """Give a floating number; see ``number``."""
        return float(self._of_type(name, default, (int, float), "a number"))

    def text(self, name: str, default: str | None = None) -> str:
        """Give text; see ``number``."""
        value = self._of_type(name, default, (bytes, str), "text")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """Give text that is one of some words; see ``number``.

        Raises:
            LoweringError: It is none of them.
        """
        value = self.text(name, default)
        if value not in choices:
            listed = ", ".join(choices)
            raise LoweringError(f"attribute {name!r} is {value!r}, not one of {listed}")
        return value

    def list(self, name: str) -> tuple[int, ...] | None:
        """Give whole numbers, or None where the attribute is left out; see ``number``."""
        return self._of_elements(name, (int,), "whole numbers")

    def reals(self, name: str) -> tuple[float, ...]:
        """Give numbers; none where the attribute is left out."""
        return tuple(map(float, self._of_elements(name, (int, float), "numbers") or ()))

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Give texts, or None where the attribute is left out."""
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
        """Give an attribute that names an axis of a tensor of a rank, from 0."""
        return axis_of(self.number(name, default), rank)


def axes_of(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Count axes from the front; see ``axis_of``.

    Raises:
        ShapeError: One is named twice.
    """
    result = tuple(axis_of(axis, rank) for axis in axes)
    if len(set(result)) != len(result):
        raise ShapeError(f"axes {list(axes)} name one twice")
    return result


def axis_of(axis: int, rank: int) -> int:
    """Count an axis, which may be negative, from the front: in ``0 .. rank - 1``.

    Raises:
        ShapeError: There is no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"there is no axis {axis} of {rank}")
    return axis % rank


type RuleFunction = Callable[[Call], Result]


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator is lowered."""

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
    """Give all rules, by domain and operator; imports all modules of ``engine.lowering``, once."""
    import_module("walle_stream.engine.control")
    package = import_module("walle_stream.engine.lowering")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return _RULES
