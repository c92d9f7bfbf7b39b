"""Models as they come: nodes by name, before they are lowered.

An importer makes them; nothing here knows a file format. Names, attributes and
operators are ONNX's, the vocabulary that models are exchanged in; the opset
imports say which version of an operator a node means.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from walle_stream.engine.program import Array, DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """Of an input or output: a dtype and what is known of the shape."""

    dtype: DType
    shape: tuple[int | str | None, ...] | None = None
    """A number, a name that stands for one number, or None; None for any rank."""


@dataclass(frozen=True, slots=True)
class SequenceType:
    """Tensors in a list."""

    element: "ValueType"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value, or none."""

    element: "ValueType"


TITLE_MAX: Final = 200

type ValueType = TensorType | SequenceType | OptionalType | None


def _shown(name: str) -> str:
    # a name comes from a file: a message is one line of bounded length all the same
    short = name if len(name) <= TITLE_MAX else f"{name[:TITLE_MAX]}..."
    return short if short.isprintable() else ascii(short)


class OperatorKey(NamedTuple):
    """What a node calls: an operator, or a function of the model."""

    domain: str
    name: str
    overload: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator applied to values; an empty name is an input or output left out."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, text (bytes), arrays, graphs, and tuples of them."""
    name: str = ""
    domain: str = ""
    version: int = 0
    """The version of the operator's domain that the node was written for."""
    overload: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        called = self.name or ", ".join(name for name in self.outputs if name)
        return f"node {_shown(called)!r} ({_shown(self.qualified_operator)}, opset {self.version})"

    @property
    def key(self) -> OperatorKey:
        """What it calls."""
        return OperatorKey(self.domain, self.operator, self.overload)

    @property
    def qualified_operator(self) -> str:
        """Its operator, behind its domain where that is not ONNX's own."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator

    @property
    def first_output(self) -> str:
        """The name of the first output that has one; of no other node."""
        return next((name for name in self.outputs if name), "")

    @property
    def needed(self) -> set[str]:
        """Names of the values that it reads, those of its graphs included."""
        free = (name for graph in self.graphs() for name in graph.free_names)
        return {*self.inputs, *free} - {""}

    def within(self) -> Iterator["Node"]:
        """Give it, the nodes of its graphs, and what is within these."""
        yield self
        for graph in self.graphs():
            for node in graph.nodes:
                yield from node.within()

    def graphs(self) -> Iterator["Graph"]:
        """Give the graphs among its attributes."""
        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value
            elif isinstance(value, tuple):
                yield from (element for element in value if isinstance(element, Graph))


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which each finds its inputs made."""

    name: str
    inputs: Mapping[str, ValueType]
    """In order; those that a constant stands in for are given or left out."""
    outputs: Mapping[str, ValueType]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)

    @cached_property
    def free_names(self) -> frozenset[str]:
        """Names of an enclosing graph that this one reads."""
        known = {*self.inputs, *self.constants}
        free: set[str] = set()
        for node in self.nodes:
            free |= node.needed - known
            known |= set(node.outputs)
        free |= set(self.outputs) - known
        return frozenset(free)

    def __getstate__(self) -> dict[str, Any]:
        """Give what is pickled; weights with gaps as the memory that they are views of.

        numpy would copy those into the pickle: in a buffer beside it, processes share them.
        """
        packed = {name: _Gapped.of(data) or data for name, data in self.constants.items()}
        return {**vars(self), "constants": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what was pickled."""
        constants = {
            name: data.view() if isinstance(data, _Gapped) else data
            for name, data in state["constants"].items()
        }
        vars(self).update({**state, "constants": constants})


class _Gapped(NamedTuple):
    """A matrix whose rows have gaps between them: see ``planning.weights``."""

    memory: Array
    columns: int

    @classmethod
    def of(cls, data: Array) -> "_Gapped | None":
        memory = data.base
        if not isinstance(memory, np.ndarray) or not memory.flags.c_contiguous:
            return None
        if data.ndim != 2 or data.flags.contiguous or memory.dtype != data.dtype:  # noqa: PLR2004
            return None
        is_begin = memory.ctypes.data == data.ctypes.data and data.strides == memory.strides
        return cls(memory, data.shape[1]) if is_begin and len(memory) == len(data) else None

    def view(self) -> Array:
        matrix = self.memory[:, : self.columns]
        matrix.flags.writeable = False
        return matrix


@dataclass(frozen=True, slots=True)
class Function:
    """An operator that a model defines by other nodes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    """Names that nodes of it may refer to."""
    defaults: Mapping[str, Any]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A graph and the functions that it calls."""

    graph: Graph
    functions: Mapping[OperatorKey, Function] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """Stands for an attribute of the function that a node is in."""

    name: str
